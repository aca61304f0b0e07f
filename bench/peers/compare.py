#!/usr/bin/env python3
"""Trains with the peers' settings, ours and theirs alternately on one core; medians and ratios.

    bench/peers/compare.py <build folder> [--only ppo|a2c|dqn]

SB3 and rl_tools run here. CleanRL's and PufferLib's figures were measured on a machine of this kind (README.md in this
folder) and are scaled by how SB3's run of the same algorithm performs now against what it did then.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROUNDS = 5
HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Sb3:
    run: str  # of sb3.py
    then: float | None = None  # its steps/s when the stored figures were taken: later rows are scaled by it


@dataclasses.dataclass(frozen=True)
class RlTools:
    program: str  # in the build folder


@dataclasses.dataclass(frozen=True)
class Stored:
    then: float  # steps/s


@dataclasses.dataclass(frozen=True)
class Comparison:
    name: str
    peer: Sb3 | RlTools | Stored
    algo: str
    env: str
    steps: int
    settings: str  # the peer's, in our names
    bar: float | None = None  # ratio to reach


COMMON = "shards=1 eval_every=0 eval_episodes=1"

DQN_CLEANRL = """envs=1 horizon=10 batch=128 replay=10000 learning_starts=1000 learning_rate=2.5e-4
                 learning_rate_schedule=constant target_every=50 target_tau=1 double=false epsilon_start=1
                 epsilon_end=0.05 exploration_fraction=0.5 hidden=120,84 activation=relu gamma=0.99 max_grad_norm=0"""

# A stored figure is scaled by the SB3 run above it, of the same algorithm.
COMPARISONS = [
    Comparison("SB3 PPO CartPole, zoo settings", Sb3("ppo-cartpole-zoo", then=3867), "ppo", "CartPole-v1", 300_000,
               """envs=8 horizon=32 minibatches=1 epochs=20 gamma=0.98 gae_lambda=0.8 learning_rate=1e-3
                  clip_schedule=linear hidden=64,64"""),
    Comparison("CleanRL PPO CartPole (scaled)", Stored(4806), "ppo", "CartPole-v1", 1_000_000,
               """envs=4 horizon=128 minibatches=4 epochs=4 learning_rate=2.5e-4 value_clip=0.2 entropy_coef=0.01
                  hidden=64,64""", bar=40),
    Comparison("PufferLib CartPole (scaled)", Stored(258_000), "ppo", "CartPole-v1", 8_000_000,
               """envs=4096 horizon=64 minibatches=8 epochs=1 hidden=128 shared_tower=true activation=relu""", bar=4),
    Comparison("rl_tools PPO Pendulum", RlTools("rl_tools_ppo"), "ppo", "Pendulum-v1", 1_000_000,
               """envs=4 horizon=1024 minibatches=16 epochs=2 gamma=0.9 gae_lambda=0.95 learning_rate=1e-3
                  learning_rate_schedule=constant hidden=64,64 activation=relu normalise_obs=false""", bar=1.4),
    Comparison("SB3 A2C CartPole, default settings", Sb3("a2c-cartpole-default"), "a2c", "CartPole-v1", 1_000_000,
               """envs=8 horizon=5 gae_lambda=1 gamma=0.99 learning_rate=7e-4 learning_rate_schedule=constant
                  value_coef=0.5 entropy_coef=0 max_grad_norm=0.5 optimizer=rmsprop rms_alpha=0.99 optimizer_eps=1e-5
                  normalise_advantages=false hidden=64,64""", bar=40),
    Comparison("SB3 DQN CartPole, CleanRL's settings", Sb3("dqn-cartpole-cleanrl", then=2612), "dqn", "CartPole-v1",
               500_000, DQN_CLEANRL),
    Comparison("CleanRL DQN CartPole (scaled)", Stored(3757), "dqn", "CartPole-v1", 500_000, DQN_CLEANRL, bar=12),
]


def rate_of(command):
    """steps/s from the first line of JSON that has them."""
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {run.returncode}: {run.stderr.strip()}")
    return next(row["steps_per_s"] for row in map(json.loads, run.stdout.splitlines()) if "steps_per_s" in row)


def our_rate(comparison, build):
    with tempfile.TemporaryDirectory() as folder:
        command = [build / "trireme", "train", "--algo", comparison.algo, "--env", comparison.env, "--steps",
                   str(comparison.steps), "--workers", "1", "--json", "--out", folder + "/run"]
        for setting in f"{comparison.settings} {COMMON}".split():
            command += ["--set", setting]
        return rate_of(command)


def their_rate(peer, build, scale):
    match peer:
        case Sb3():
            return rate_of([sys.executable, HERE / "sb3.py", "--run", peer.run, "--repeats", "1"])
        case RlTools():
            return rate_of([build / peer.program])
        case Stored():
            return scale * peer.then


def compare(comparison, build, scale):
    """Prints the medians over rounds that alternate theirs and ours; returns the median of theirs."""
    theirs, ours = [], []
    for _ in range(ROUNDS):
        theirs.append(their_rate(comparison.peer, build, scale))
        ours.append(our_rate(comparison, build))
    ratio = statistics.median(our / their for our, their in zip(ours, theirs))
    bar = "-" if comparison.bar is None else f"{comparison.bar:g}x"
    print(f"{comparison.name:<44} {statistics.median(theirs):>10,.0f} {statistics.median(ours):>12,.0f} "
          f"{ratio:>8.2f}x   {bar}", flush=True)
    return statistics.median(theirs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="folder with our binary and rl_tools_ppo")
    parser.add_argument("--only", choices=sorted({comparison.algo for comparison in COMPARISONS}),
                        help="one algorithm's comparisons")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"{'steps/s, one core':<44} {'peer':>10} {'trireme':>12} {'ratio':>9}   bar")
    scale = None
    for comparison in COMPARISONS:
        peer = comparison.peer
        if arguments.only not in (None, comparison.algo):
            continue
        if isinstance(peer, RlTools) and not (arguments.build / peer.program).exists():
            print("rl_tools: skipped, its headers or OpenBLAS could not be had")
            continue
        rate = compare(comparison, arguments.build, scale)
        if isinstance(peer, Sb3) and peer.then is not None:
            scale = rate / peer.then
            print(f"  (SB3 runs at {scale:.2f} of {peer.then:,} steps/s; figures taken then are scaled by it)",
                  flush=True)


if __name__ == "__main__":
    main()
