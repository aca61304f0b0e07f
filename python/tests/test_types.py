"""The type hints of the package, by mypy; exit code 77 (skipped) where that is not installed."""

import importlib.util
import subprocess
import sys
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]


class Types(unittest.TestCase):
    def test_mypy_finds_nothing(self):
        command = [sys.executable, "-m", "mypy", "--cache-dir=/dev/null"]  # pyproject.toml says the rest
        done = subprocess.run(command, capture_output=True, text=True, cwd=SOURCE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    if importlib.util.find_spec("mypy") is None:
        print("skipped: mypy is not installed")
        sys.exit(77)
    unittest.main()
