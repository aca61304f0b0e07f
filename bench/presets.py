#!/usr/bin/env python3
"""Whether the presets solve their tasks: ten seeds each, to the first evaluation that reaches the target.

    bench/presets.py [build/trireme] [--full] [--first-seed 11] [--only NAME]

With --full the runs go on to the end of their steps and their last evaluation counts. --only keeps the rows whose
environment or algorithm has that name.
"""
import argparse
import json
import shutil
import statistics
import subprocess
import tempfile

TARGETS = {"CartPole-v1": 475, "Acrobot-v1": -100, "MountainCar-v0": -110, "MountainCarContinuous-v0": 90,
           "Pendulum-v1": -200, "gym:LunarLander-v3": 200}
PRESETS = [("CartPole-v1", "ppo"), ("Acrobot-v1", "ppo"), ("MountainCarContinuous-v0", "ppo"), ("Pendulum-v1", "ppo"),
           ("CartPole-v1", "a2c"), ("CartPole-v1", "a3c"), ("Acrobot-v1", "a2c"), ("CartPole-v1", "dqn"),
           ("CartPole-v1", "async_dqn"), ("Acrobot-v1", "dqn"), ("MountainCar-v0", "dqn"), ("CartPole-v1", "impala"),
           ("Acrobot-v1", "impala"), ("CartPole-v1", "appo"), ("Acrobot-v1", "appo"),
           ("CartPole-v1", "apex"), ("Acrobot-v1", "apex"), ("gym:LunarLander-v3", "ppo")]
MORE = {"impala": ["--actors", "2"], "appo": ["--actors", "2"], "apex": ["--actors", "2"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme", nargs="?", default="build/trireme")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    print("| environment | algorithm | target | solved | evaluation: median, worst | steps: median, most | seconds: median |")
    print("|---|---|---|---|---|---|---|")
    for env, algo in PRESETS:
        if arguments.only not in (None, env, algo):
            continue
        if env.startswith("gym:") and subprocess.run([arguments.trireme, "envs", env], capture_output=True).returncode != 0:
            print(f"| {env} | {algo} | not installed: trireme envs {env} says why |", flush=True)
            continue
        target, results = TARGETS[env], []
        for seed in range(arguments.first_seed, arguments.first_seed + 10):
            folder = tempfile.mkdtemp()
            command = [arguments.trireme, "train", "--env", env, "--algo", algo, "--seed", str(seed), "--json", "--out",
                       folder + "/run", *MORE.get(algo, []), *([] if arguments.full else ["--target", str(target)])]
            run = subprocess.run(command, check=True, capture_output=True, text=True)
            shutil.rmtree(folder)
            results.append(json.loads(run.stdout.splitlines()[-1]))
        returns = [r["eval_return_mean"] for r in results]
        steps = [r["steps"] for r in results]
        print(f"| {env} | {algo} | {target} | {sum(value >= target for value in returns)} of {len(returns)} | "
              f"{statistics.median(returns):.1f}, {min(returns):.1f} | {statistics.median(steps):,.0f}, {max(steps):,} | "
              f"{statistics.median(r['wall_s'] for r in results):.2f} |", flush=True)


if __name__ == "__main__":
    main()
