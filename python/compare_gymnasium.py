#!/usr/bin/env python3
"""Compares the environments with the Gymnasium that is installed, on fresh episodes.

    python/compare_gymnasium.py [--test build/src/env/env_test] [--rounds 3] [--seed N]

Each round plays new episodes in Gymnasium (gym_traces.py) and has the trace test replay them. Exit code 0: all
agree to 1e-6; 1: some do not; 77: Gymnasium is not installed, nothing was compared.
"""
import argparse
import os
import pathlib
import random
import subprocess
import sys
import tempfile


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--test", default=root / "build" / "src" / "env" / "env_test", help="the env_test program")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=None, help="of the first round; random when not given")
    args = parser.parse_args()
    try:
        import gym_traces
    except ModuleNotFoundError as missing:
        print(f"skipped: {missing.name} is not installed (pip install gymnasium numpy)", file=sys.stderr)
        return 77
    if not pathlib.Path(args.test).is_file():
        print(f"there is no {args.test}: build it, or name it with --test", file=sys.stderr)
        return 2
    first = args.seed if args.seed is not None else random.randrange(1, 10**6)
    for seed in range(first, first + args.rounds):
        print(f"seed {seed}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            gym_traces.write_traces(folder, seed, resync=50)
            sys.stdout.flush()
            replay = subprocess.run([args.test, "--gtest_filter=Traces.*", "--gtest_brief=1"],
                                    env={**os.environ, "TRIREME_ENV_TRACES": folder}, check=False)
        if replay.returncode != 0:
            print(f"not the same as Gymnasium; repeat with --rounds 1 --seed {seed}", file=sys.stderr)
            return 1
    print("the same as Gymnasium")
    return 0


if __name__ == "__main__":
    sys.exit(main())
