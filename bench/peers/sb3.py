"""Times stable-baselines3's PPO, A2C and DQN on CartPole-v1 and prints one JSON line per run.

The clock covers learning alone: imports, building the networks, what is collected before the first update and
that update, which pays for allocations, stay outside. Pin it to a core from outside (taskset) to compare like
with like. Where cpu_seconds is well below seconds, something else was using that core and steps_per_s is too low.
"""

import argparse
import dataclasses
import json
import os
import time

# OpenBLAS keeps threads of its own, out of reach of torch.set_num_threads; it reads this once, when loaded.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import torch  # noqa: E402
from stable_baselines3 import A2C, DQN, PPO  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402


def falling(initial):
    return lambda remaining: remaining * initial


@dataclasses.dataclass(frozen=True)
class Run:
    algorithm: type
    envs: int
    settings: dict  # whatever is not named here is SB3's default


RUNS = {
    "ppo-cartpole-default": Run(PPO, 8, {}),
    "ppo-cartpole-zoo": Run(PPO, 8, dict(
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        ent_coef=0.0,
        learning_rate=falling(1e-3),
        clip_range=falling(0.2),
    )),
    "a2c-cartpole-default": Run(A2C, 8, {}),  # 5 steps per update, two 64-64 tanh networks, RMSprop
    # CleanRL's settings, except that learning starts at 1,000 steps rather than at 10,000. A greedy action costs
    # a forward pass and a random one does not, so the speed depends on the exploration rate: it falls over half
    # of the steps timed, however many, and their mix is that of a whole training.
    "dqn-cartpole-cleanrl": Run(DQN, 1, dict(
        policy_kwargs=dict(net_arch=[120, 84]),
        batch_size=128,
        train_freq=10,
        gradient_steps=1,
        buffer_size=10_000,
        learning_rate=2.5e-4,
        learning_starts=1_000,
        target_update_interval=500,
        tau=1.0,
        gamma=0.99,
        exploration_initial_eps=1.0,
        exploration_final_eps=0.05,
        exploration_fraction=0.5,
    )),
}


class LearningClock(BaseCallback):
    """Starts when the first update is over, which is when the rollout after it begins."""

    def __init__(self):
        super().__init__()
        self.started = None
        self.cpu_started = None
        self.steps_before = 0

    def _on_rollout_start(self):
        if self.started is None and self.model._n_updates > 0:
            self.steps_before = self.num_timesteps
            self.started = time.perf_counter()
            self.cpu_started = time.process_time()

    def _on_step(self):
        return True


def steps_to_first_update(model):
    if isinstance(model, DQN):
        return model.learning_starts + model.train_freq.frequency
    return model.n_steps * model.n_envs


def train(name, steps, seed):
    run = RUNS[name]
    envs = make_vec_env("CartPole-v1", n_envs=run.envs, seed=seed)
    model = run.algorithm("MlpPolicy", envs, seed=seed, device="cpu", **run.settings)
    clock = LearningClock()
    model.learn(total_timesteps=steps_to_first_update(model) + steps, callback=clock)
    seconds = time.perf_counter() - clock.started
    cpu_seconds = time.process_time() - clock.cpu_started
    timed = model.num_timesteps - clock.steps_before
    returns = [episode["r"] for episode in model.ep_info_buffer]
    return {
        "peer": "sb3",
        "run": name,
        "envs": run.envs,
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
    for name in RUNS if arguments.run == "all" else [arguments.run]:
        tries = [train(name, arguments.steps, arguments.seed) for _ in range(arguments.repeats)]
        tries.sort(key=lambda result: result["steps_per_s"])
        print(json.dumps(tries[len(tries) // 2]), flush=True)


if __name__ == "__main__":
    main()
