"""A search for PPO settings on CartPole-v1 by Optuna and stable-baselines3, in the space that `trireme tune` searches: the time
to an evaluation of 475, three seeds to a trial, two processes on one study, poor trials ended early by successive halving. At
the end the best one is run again on fresh seeds, as `trireme tune` does it. Prints how the best improved over the time.

    bench/peers/optuna_sb3.py [--minutes 60] [--processes 2] [--fresh-seeds 20]

Runs with a Python that has stable-baselines3 and Optuna."""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"

TARGET, STEPS, EVALUATE_EVERY, EPISODES, SEEDS = 475, 100_000, 4096, 20, 3
RUNGS = [3704, 11_111, 33_333]  # steps, as `trireme tune` has them
MISSED = 86_400  # seconds that count for a seed that does not reach the target


def ask(trial):
    """The space of `trireme tune --env CartPole-v1 --algo ppo --show-space`."""
    return {
        "envs": trial.suggest_categorical("envs", [8, 16, 32, 64, 128]),
        "horizon": trial.suggest_categorical("horizon", [8, 16, 32, 64, 128, 256]),
        "epochs": trial.suggest_int("epochs", 1, 12, log=True),
        "minibatches": trial.suggest_categorical("minibatches", [1, 2, 4, 8, 16]),
        "gamma": 1 - trial.suggest_float("one_minus_gamma", 0.001, 0.1, log=True),
        "gae_lambda": 1 - trial.suggest_float("one_minus_gae_lambda", 0.01, 0.3, log=True),
        "clip": trial.suggest_float("clip", 0.1, 0.5, log=True),
        "value_coef": trial.suggest_float("value_coef", 0.1, 1, log=True),
        "entropy_coef": trial.suggest_float("entropy_coef", 1e-5, 0.03, log=True),
        "learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True),
        "schedule": trial.suggest_categorical("learning_rate_schedule", ["constant", "linear"]),
        "max_grad_norm": trial.suggest_float("max_grad_norm", 0.3, 5, log=True),
        "layers": trial.suggest_int("hidden_layers", 1, 2),
        "width": trial.suggest_categorical("hidden_width", [16, 32, 64, 128]),
        "activation": trial.suggest_categorical("activation", ["tanh", "relu"]),
    }


class Seed:
    """One training that is taken further bit by bit, so that a trial can be judged by all its seeds at a rung."""

    def __init__(self, settings, seed):
        import torch
        from stable_baselines3 import PPO
        from stable_baselines3.common.env_util import make_vec_env

        torch.set_num_threads(1)
        self.seconds, self.reached, self.last, self.best, self.steps = 0.0, False, -math.inf, -math.inf, 0
        begun = time.perf_counter()
        rate = settings["learning_rate"]
        batch = settings["envs"] * settings["horizon"]
        self.eval_env = make_vec_env("CartPole-v1", seed=1000 + seed)
        self.model = PPO(
            "MlpPolicy", make_vec_env("CartPole-v1", n_envs=settings["envs"], seed=seed), seed=seed, device="cpu",
            n_steps=settings["horizon"], batch_size=max(1, batch // settings["minibatches"]), n_epochs=settings["epochs"],
            gamma=settings["gamma"], gae_lambda=settings["gae_lambda"], clip_range=settings["clip"],
            vf_coef=settings["value_coef"], ent_coef=settings["entropy_coef"], max_grad_norm=settings["max_grad_norm"],
            learning_rate=rate if settings["schedule"] == "constant" else self.falling(rate),
            policy_kwargs=dict(net_arch=[settings["width"]] * settings["layers"],
                               activation_fn=torch.nn.Tanh if settings["activation"] == "tanh" else torch.nn.ReLU))
        self.seconds = time.perf_counter() - begun

    def falling(self, rate):
        return lambda _: rate * max(0.0, 1 - self.steps / STEPS)

    def train(self, until):
        """Up to so many steps, evaluating on the way; ends at the target."""
        from stable_baselines3.common.evaluation import evaluate_policy

        begun = time.perf_counter()
        while not self.reached and self.steps < until:
            self.model.learn(total_timesteps=min(EVALUATE_EVERY, STEPS), reset_num_timesteps=self.steps == 0)
            self.steps = self.model.num_timesteps
            self.last, _ = evaluate_policy(self.model, self.eval_env, n_eval_episodes=EPISODES)
            self.best = max(self.best, self.last)
            self.reached = self.last >= TARGET
        self.seconds += time.perf_counter() - begun

    def value(self):
        return self.seconds if self.reached else MISSED * (2 - max(0.0, self.best) / TARGET)


def score(seeds):
    values = [seed.value() for seed in seeds]
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0
    return statistics.mean(values) + error


def objective(trial):
    import optuna

    settings = ask(trial)
    if settings["envs"] * settings["horizon"] < settings["minibatches"]:
        raise optuna.TrialPruned()
    seeds = [Seed(settings, seed) for seed in range(1, SEEDS + 1)]
    for rung in RUNGS + [STEPS]:
        for seed in seeds:
            seed.train(rung)
        if all(seed.reached for seed in seeds):
            break
        trial.report(-statistics.mean(seed.last for seed in seeds), rung)
        if rung < STEPS and trial.should_prune():
            raise optuna.TrialPruned()
    trial.set_user_attr("ended_s", time.time())
    return score(seeds)


def make_study(storage):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(
        study_name="cartpole", storage=storage, load_if_exists=True, sampler=optuna.samplers.TPESampler(),
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=RUNGS[0], reduction_factor=3))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--fresh-seeds", type=int, default=20)
    parser.add_argument("--worker", help="the study; for processes of this program")
    args = parser.parse_args()
    if args.worker:
        make_study(args.worker).optimize(objective, timeout=60 * args.minutes, catch=(Exception,))
        return
    with tempfile.TemporaryDirectory() as folder:
        storage = f"sqlite:///{folder}/study.db"
        study = make_study(storage)
        begun = time.time()
        workers = [subprocess.Popen(["taskset", "-c", str(i % os.cpu_count()), sys.executable, __file__, "--worker", storage,
                                     "--minutes", str(args.minutes)]) for i in range(args.processes)]
        for worker in workers:
            worker.wait()
        complete = [trial for trial in study.trials if trial.value is not None and "ended_s" in trial.user_attrs]
        best = math.inf
        for trial in sorted(complete, key=lambda trial: trial.user_attrs["ended_s"]):
            if trial.value < best:
                best = trial.value
                print(json.dumps({"minutes": round((trial.user_attrs["ended_s"] - begun) / 60, 1), "trial": trial.number,
                                  "value_s": round(best, 3)}), flush=True)
        import optuna

        settings = ask(optuna.trial.FixedTrial(study.best_params))
        fresh = []
        for seed in range(SEEDS + 1, SEEDS + 1 + args.fresh_seeds):
            run = Seed(settings, seed)
            run.train(STEPS)
            fresh.append(run)
        reached = [run.seconds for run in fresh if run.reached]
        print(json.dumps({"trials": len(study.trials), "complete": len(complete), "settings": settings,
                          "fresh_seeds": len(fresh), "reached": len(reached),
                          "median_s": round(statistics.median(reached), 3) if reached else None}))


if __name__ == "__main__":
    main()
