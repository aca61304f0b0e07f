#!/usr/bin/env python3
"""Whether the PPO presets solve their tasks: ten seeds each, to the first evaluation that reaches the target.

    bench/presets.py [build/trireme] [--full]

With --full the runs go on to the end of their steps and their last evaluation counts.
"""
import json
import shutil
import statistics
import subprocess
import sys
import tempfile

TARGETS = {"CartPole-v1": 475, "Acrobot-v1": -100, "MountainCarContinuous-v0": 90, "Pendulum-v1": -200}
SEEDS = range(1, 11)


def main():
    full = "--full" in sys.argv
    trireme = next((a for a in sys.argv[1:] if not a.startswith("--")), "build/trireme")
    print("| environment | target | solved | evaluation: median, worst | steps: median, most | seconds: median |")
    print("|---|---|---|---|---|---|")
    for env, target in TARGETS.items():
        results = []
        for seed in SEEDS:
            folder = tempfile.mkdtemp()
            command = [trireme, "train", "--env", env, "--algo", "ppo", "--seed", str(seed), "--json", "--out", folder + "/run"]
            run = subprocess.run(command + ([] if full else ["--target", str(target)]), check=True, capture_output=True, text=True)
            shutil.rmtree(folder)
            results.append(json.loads(run.stdout.splitlines()[-1]))
        returns = [r["eval_return_mean"] for r in results]
        steps = [r["steps"] for r in results]
        print(f"| {env} | {target} | {sum(value >= target for value in returns)} of {len(returns)} | "
              f"{statistics.median(returns):.1f}, {min(returns):.1f} | {statistics.median(steps):,.0f}, {max(steps):,} | "
              f"{statistics.median(r['wall_s'] for r in results):.2f} |", flush=True)


if __name__ == "__main__":
    main()
