#!/usr/bin/env python3
"""Environment steps/s of actors and a learner against PPO, whose workers collect for themselves, on the same cores.

    bench/actors.py [build/trireme] [--turns 5] [--steps 2000000]

CartPole-v1 with two networks, the presets' other settings, no evaluations; `ppo, one pass` learns once from what it has
collected, as impala does. Medians of runs that take turns.
"""
import argparse
import json
import statistics
import subprocess
import tempfile

WAYS = {"ppo": ["--algo", "ppo", "--workers", "2"],
        "ppo, one pass": ["--algo", "ppo", "--workers", "2", "--set", "epochs=1"],
        "impala": ["--algo", "impala", "--actors", "2"],
        "appo": ["--algo", "appo", "--actors", "2"]}
NETWORKS = ["[32,32]", "[64,64]"]


def steps_per_second(trireme, way, hidden, steps):
    with tempfile.TemporaryDirectory() as folder:
        command = [trireme, "train", "--env", "CartPole-v1", *WAYS[way], "--steps", str(steps), "--set", f"hidden={hidden}",
                   "--set", "eval_every=0", "--json", "--out", folder + "/run"]
        run = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(run.stdout.splitlines()[-1])
    return result["steps"] / result["wall_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme", nargs="?", default="build/trireme")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2_000_000)
    arguments = parser.parse_args()
    print("| network | " + " | ".join(WAYS) + " | impala / ppo | impala / ppo, one pass |")
    print("|---" * (len(WAYS) + 3) + "|")
    for hidden in NETWORKS:
        turns = [{way: steps_per_second(arguments.trireme, way, hidden, arguments.steps) for way in WAYS}
                 for _ in range(arguments.turns)]
        medians = [f"{statistics.median(turn[way] for turn in turns):,.0f}" for way in WAYS]
        ratios = [f"{statistics.median(turn['impala'] / turn[way] for turn in turns):.2f}" for way in ("ppo", "ppo, one pass")]
        print(f"| {hidden} | {' | '.join(medians + ratios)} |", flush=True)


if __name__ == "__main__":
    main()
