"""Seconds from the start of the process to an evaluation of 475 on Gymnasium's CartPole-v1 with the settings of SB3's zoo:
stable-baselines3, and Trireme through host processes. Alternating, a seed each; both evaluate 20 episodes every 40 iterations.

    bench/peers/gym_target.py <build folder> [--seeds 5]

Runs with the Python that has stable-baselines3."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TARGET, STEPS, EVALUATE_EVERY, EPISODES = 475, 100_000, 40 * 8 * 32, 20
SETTINGS = """envs=8 horizon=32 minibatches=1 epochs=20 gamma=0.98 gae_lambda=0.8 learning_rate=1e-3 clip_schedule=linear
    hidden=64,64""".split()
BAR, RLLIB = 8, 775  # RLlib 2.60, PPO on CartPole: steps/s on a machine of this kind


def sb3(seed):
    """In a process of its own."""
    import sb3 as runs
    from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold
    from stable_baselines3.common.env_util import make_vec_env

    run = runs.RUNS["ppo-cartpole-zoo"]
    envs = make_vec_env("CartPole-v1", n_envs=run.envs, seed=seed)
    model = run.algorithm("MlpPolicy", envs, seed=seed, device="cpu", **run.settings)
    stop = EvalCallback(make_vec_env("CartPole-v1", seed=1000 + seed), n_eval_episodes=EPISODES, verbose=0,
                        eval_freq=EVALUATE_EVERY // run.envs,
                        callback_on_new_best=StopTrainingOnRewardThreshold(TARGET, verbose=0))
    begun = time.perf_counter()
    model.learn(total_timesteps=STEPS, callback=stop)
    print(json.dumps({"reached": stop.best_mean_reward >= TARGET, "steps": model.num_timesteps,
                      "steps_per_s": model.num_timesteps / (time.perf_counter() - begun)}))


def timed(command):
    begun = time.perf_counter()
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                         env={**os.environ, "TRIREME_PYTHON": sys.executable})
    if run.returncode != 0:
        sys.exit(f"{command}\nended with {run.returncode}: {run.stderr.strip()}")
    return time.perf_counter() - begun, json.loads(run.stdout.splitlines()[-1])


def ours(build, seed, *more):
    with tempfile.TemporaryDirectory() as folder:
        command = [build / "trireme", "train", "--algo", "ppo", "--env", "gym:CartPole-v1", "--seed", seed, "--json",
                   "--out", folder + "/run", *more]
        for setting in SETTINGS:
            command += ["--set", setting]
        return timed(command)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, nargs="?")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sb3", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.sb3 is not None:
        return sb3(arguments.sb3)
    target = ["--target", TARGET, "--steps", STEPS, "--set", f"eval_every={EVALUATE_EVERY}", "--set", f"eval_episodes={EPISODES}"]
    speed = ["--steps", STEPS, "--set", "eval_every=0", "--set", "eval_episodes=1"]
    theirs, mine, rates = [], [], []
    for seed in range(1, arguments.seeds + 1):
        theirs.append(timed([sys.executable, __file__, "--sb3", seed]))
        mine.append(ours(arguments.build, seed, *target))
        rates.append(ours(arguments.build, seed, *speed)[1]["steps_per_s"])
    for name, runs, reached in (("SB3", theirs, lambda r: r["reached"]), ("Trireme", mine, lambda r: r["reached_target"])):
        print(f"gym:CartPole-v1 to {TARGET}, {name:<8} median {statistics.median(s for s, _ in runs):6.2f} s, "
              f"reached by {sum(reached(r) for _, r in runs)} of {len(runs)} within {STEPS:,} steps")
    ratio = statistics.median(their / our for (their, _), (our, _) in zip(theirs, mine))
    print(f"gym:CartPole-v1 to {TARGET}: {ratio:.1f} times as fast as SB3 (at least {BAR})")
    rate = statistics.median(rates)
    print(f"gym:CartPole-v1, the same settings: {rate:,.0f} steps/s; SB3 {statistics.median(r['steps_per_s'] for _, r in theirs):,.0f} "
          f"with its evaluations; RLlib 2.60 with its own settings {RLLIB}: {rate / RLLIB:.0f} times as many (at least 50)")


if __name__ == "__main__":
    main()
