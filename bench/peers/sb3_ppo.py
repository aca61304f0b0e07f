"""Times stable-baselines3's PPO on CartPole-v1 and prints one JSON line per run.

The clock covers learning alone: imports, building the networks and the first rollout and update, which pay
for allocations, stay outside. Pin it to a core from outside (taskset) to compare like with like. Where
cpu_seconds is well below seconds, something else was using that core and steps_per_s is too low.
"""

import argparse
import json
import os
import time

# OpenBLAS keeps threads of its own, out of reach of torch.set_num_threads; it reads this once, when loaded.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import torch  # noqa: E402
from stable_baselines3 import PPO  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402

ENVS = 8


def falling(initial):
    return lambda remaining: remaining * initial


# Settings by run name; whatever is not named here is SB3's default.
RUNS = {
    "ppo-cartpole-default": {},
    "ppo-cartpole-zoo": dict(
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        ent_coef=0.0,
        learning_rate=falling(1e-3),
        clip_range=falling(0.2),
    ),
}


class SteadyClock(BaseCallback):
    """Starts when the first update is over, which is when the second rollout begins."""

    def __init__(self):
        super().__init__()
        self.rollouts = 0
        self.started = None
        self.cpu_started = None
        self.steps_before = 0

    def _on_rollout_start(self):
        self.rollouts += 1
        if self.rollouts == 2:
            self.steps_before = self.num_timesteps
            self.started = time.perf_counter()
            self.cpu_started = time.process_time()

    def _on_step(self):
        return True


def train(run, steps, seed):
    envs = make_vec_env("CartPole-v1", n_envs=ENVS, seed=seed)
    model = PPO("MlpPolicy", envs, seed=seed, device="cpu", **RUNS[run])
    rollout = model.n_steps * ENVS
    clock = SteadyClock()
    # learn() stops at a whole number of rollouts; one more stays outside the clock.
    model.learn(total_timesteps=max(steps, rollout) + rollout, callback=clock)
    seconds = time.perf_counter() - clock.started
    cpu_seconds = time.process_time() - clock.cpu_started
    timed = model.num_timesteps - clock.steps_before
    returns = [episode["r"] for episode in model.ep_info_buffer]
    return {
        "peer": "sb3",
        "run": run,
        "envs": ENVS,
        "steps": timed,
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "steps_per_s": round(timed / seconds, 1),
        "training_return": round(sum(returns) / len(returns), 1) if returns else None,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", choices=[*RUNS, "all"], default="all")
    parser.add_argument("--steps", type=int, default=20_000, help="steps to time, rounded up to rollouts")
    parser.add_argument("--repeats", type=int, default=3, help="trainings per run; the median one is printed")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.steps < 1 or arguments.repeats < 1:
        parser.error("--steps and --repeats must be at least 1")
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    for run in RUNS if arguments.run == "all" else [arguments.run]:
        tries = [train(run, arguments.steps, arguments.seed) for _ in range(arguments.repeats)]
        tries.sort(key=lambda result: result["steps_per_s"])
        print(json.dumps(tries[len(tries) // 2]), flush=True)


if __name__ == "__main__":
    main()
