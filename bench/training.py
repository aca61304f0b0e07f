#!/usr/bin/env python3
"""Figures of whole training runs: time to target on CartPole, speed-up of two workers and start-up.

    bench/training.py [build/trireme]

Everything is a median over repetitions; the two sides of a ratio are run alternately.
"""
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

PRESET_SEEDS = range(1, 11)
# A problem with enough work between two exchanges of gradients to be worth two processors.
SPEEDUP = ["--env", "CartPole-v1", "--steps", "500000", "--set", "envs=256", "--set", "horizon=64", "--set", "epochs=4",
           "--set", "minibatches=4", "--set", "hidden=128,128", "--set", "eval_every=0", "--set", "eval_episodes=1"]


def train(trireme, *arguments):
    """The result of one run, and how long its process took."""
    folder = tempfile.mkdtemp()
    try:
        started = time.monotonic()
        run = subprocess.run([trireme, "train", "--algo", "ppo", "--json", "--out", folder + "/run", *arguments],
                             check=True, capture_output=True, text=True)
        return json.loads(run.stdout.splitlines()[-1]), time.monotonic() - started
    finally:
        shutil.rmtree(folder)


def main():
    trireme = sys.argv[1] if len(sys.argv) > 1 else "build/trireme"

    startups = []
    for _ in range(21):
        started = time.monotonic()
        subprocess.run([trireme, "--version"], check=True, capture_output=True)
        startups.append(time.monotonic() - started)
    print(f"start-up of the binary: {1e3 * statistics.median(startups):.1f} ms (bar: 30 ms)")

    times, whole, reached = [], [], 0
    for seed in PRESET_SEEDS:
        result, seconds = train(trireme, "--env", "CartPole-v1", "--workers", "2", "--target", "475", "--seed", str(seed))
        reached += result["reached_target"]
        times.append(result["time_to_target_s"] if result["reached_target"] else float("inf"))
        whole.append(seconds)
    print(f"CartPole-v1 preset, 2 workers, process start to an evaluation >= 475: median {statistics.median(times):.3f} s, "
          f"worst {max(times):.3f} s, {reached}/{len(times)} seeds (bar: 0.5 s); "
          f"whole process with report: median {statistics.median(whole):.3f} s")

    ratios, rates = [], {1: [], 2: []}
    for _ in range(7):
        for workers in (1, 2):
            rates[workers].append(train(trireme, *SPEEDUP, "--workers", str(workers))[0]["steps_per_s"])
        ratios.append(rates[2][-1] / rates[1][-1])
    print(f"two workers against one, same problem, same result: {statistics.median(ratios):.2f} times "
          f"({statistics.median(rates[1]):,.0f} -> {statistics.median(rates[2]):,.0f} steps/s; bar: 1.8)")


if __name__ == "__main__":
    main()
