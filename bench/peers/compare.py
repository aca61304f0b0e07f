#!/usr/bin/env python3
"""PPO with the peers' settings, ours and theirs alternately on one core; medians and ratios.

    bench/peers/compare.py <build folder>

SB3 and rl_tools run here. CleanRL's and PufferLib's figures were measured on a machine of this kind (README.md in this
folder) and are scaled by how SB3's zoo run performs now against what it did then.
"""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROUNDS = 5
SB3_ZOO_THEN = 3867
CLEANRL_THEN = 4806
PUFFERLIB_THEN = 258_000

COMMON = ["--set", "shards=1", "--set", "eval_every=0", "--set", "eval_episodes=1", "--workers", "1"]
ZOO = ["--env", "CartPole-v1", "--steps", "300000", "--set", "envs=8", "--set", "horizon=32", "--set", "minibatches=1",
       "--set", "epochs=20", "--set", "gamma=0.98", "--set", "gae_lambda=0.8", "--set", "learning_rate=1e-3", "--set",
       "clip_schedule=linear", "--set", "hidden=64,64"]
CLEANRL = ["--env", "CartPole-v1", "--steps", "1000000", "--set", "envs=4", "--set", "horizon=128", "--set",
           "minibatches=4", "--set", "epochs=4", "--set", "learning_rate=2.5e-4", "--set", "value_clip=0.2", "--set",
           "entropy_coef=0.01", "--set", "hidden=64,64"]
PUFFERLIB = ["--env", "CartPole-v1", "--steps", "8000000", "--set", "envs=4096", "--set", "horizon=64", "--set",
             "minibatches=8", "--set", "epochs=1", "--set", "hidden=128", "--set", "shared_tower=true", "--set",
             "activation=relu"]
RL_TOOLS = ["--env", "Pendulum-v1", "--steps", "1000000", "--set", "envs=4", "--set", "horizon=1024", "--set",
            "minibatches=16", "--set", "epochs=2", "--set", "gamma=0.9", "--set", "gae_lambda=0.95", "--set",
            "learning_rate=1e-3", "--set", "learning_rate_schedule=constant", "--set", "hidden=64,64", "--set",
            "activation=relu", "--set", "normalise_obs=false"]


def ours(build, settings):
    folder = tempfile.mkdtemp()
    try:
        run = subprocess.run([build / "trireme", "train", "--algo", "ppo", "--json", "--out", folder + "/run", *settings,
                              *COMMON], check=True, capture_output=True, text=True)
        return json.loads(run.stdout.splitlines()[-1])["steps_per_s"]
    finally:
        shutil.rmtree(folder)


def rate_of(command):
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return next(row["steps_per_s"] for row in map(json.loads, run.stdout.splitlines()) if "steps_per_s" in row)


def against(name, settings, build, theirs, bar):
    """Alternates ours and theirs; `theirs` gives their steps/s."""
    ours_rates, their_rates, ratios = [], [], []
    for _ in range(ROUNDS):
        their_rates.append(theirs())
        ours_rates.append(ours(build, settings))
        ratios.append(ours_rates[-1] / their_rates[-1])
    print(f"{name:<44} {statistics.median(their_rates):>10,.0f} {statistics.median(ours_rates):>12,.0f} "
          f"{statistics.median(ratios):>8.2f}x   {bar}", flush=True)
    return statistics.median(their_rates)


def main():
    build = pathlib.Path(sys.argv[1])
    here = pathlib.Path(__file__).resolve().parent
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"{'steps/s, one core':<44} {'peer':>10} {'trireme':>12} {'ratio':>9}   bar")

    sb3 = [sys.executable, here / "sb3_ppo.py", "--run", "ppo-cartpole-zoo", "--repeats", "1"]
    scale = against("SB3 PPO CartPole, zoo settings", ZOO, build, lambda: rate_of(sb3), "-") / SB3_ZOO_THEN
    print(f"  (SB3 runs at {scale:.2f} of {SB3_ZOO_THEN:,} steps/s; figures taken then are scaled by it)")
    against("CleanRL PPO CartPole (scaled)", CLEANRL, build, lambda: scale * CLEANRL_THEN, "40x")
    against("PufferLib CartPole (scaled)", PUFFERLIB, build, lambda: scale * PUFFERLIB_THEN, "4x")
    rl_tools = build / "rl_tools_ppo"
    if rl_tools.exists():
        against("rl_tools PPO Pendulum", RL_TOOLS, build, lambda: rate_of([rl_tools]), "1.4x")
    else:
        print("rl_tools: skipped, its headers or OpenBLAS could not be had")


if __name__ == "__main__":
    main()
