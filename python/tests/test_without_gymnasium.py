"""A Python that has no Gymnasium."""

import subprocess
import sys
import unittest

from test_train import InScratch

PROGRAM = """
import sys
sys.modules["gymnasium"] = None  # as if it were not there
import numpy as np
import trireme
run = trireme.train("CartPole-v1", steps=2048, envs=16, horizon=32, eval_episodes=4, out="run")
assert run.policy.predict(np.zeros(4)) in (0, 1)
trireme.PPO("CartPole-v1", envs=16, horizon=32).learn(512).predict(np.zeros(4))
for function in (trireme.make_vec, trireme.make):
    try:
        function("CartPole-v1", *([4] if function is trireme.make_vec else []))
    except ImportError as error:
        assert "pip install 'gymnasium" in str(error), error
    else:
        raise AssertionError("it was made")
"""


class WithoutGymnasium(InScratch):
    def test_what_works_and_what_says_why_not(self):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
