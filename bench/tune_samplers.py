#!/usr/bin/env python3
"""The samplers of `trireme tune` beside those of Optuna: what they find in 100 trials on five functions, over 30 repetitions, and
how long one proposal takes with 1,000 trials in the history.

    bench/tune_samplers.py build/bench/tune_bench [--repetitions 30] [--trials 100] [--history 1000] [--first-seed 1]

Needs Optuna, and its CMA-ES: pip install optuna cmaes. Less is better in all columns.
"""

import argparse
import json
import math
import random
import statistics
import subprocess
import time
import warnings

import optuna


def branin(x, y):
    a = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return a * a + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


HARTMANN_WEIGHTS = [1.0, 1.2, 3.0, 3.2]
HARTMANN_A = [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
HARTMANN_P = [
    [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
    [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
    [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650],
    [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
]


def ask_branin(trial):
    return branin(trial.suggest_float("x", -5, 10), trial.suggest_float("y", 0, 15))


def ask_hartmann6(trial):
    x = [trial.suggest_float(f"x{i}", 0, 1) for i in range(6)]
    rows = zip(HARTMANN_WEIGHTS, HARTMANN_A, HARTMANN_P)
    return -sum(w * math.exp(-sum(a * (v - p) ** 2 for a, v, p in zip(row_a, x, row_p))) for w, row_a, row_p in rows)


def ask_rosenbrock5(trial):
    x = [trial.suggest_float(f"x{i}", -2, 2) for i in range(5)]
    return sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in zip(x, x[1:]))


def ask_mixed(trial):
    optimizer = trial.suggest_categorical("optimizer", ["adam", "momentum", "rmsprop"])
    rate = trial.suggest_float("rate", 1e-5, 1, log=True)
    best_rate, offset = {"adam": (-3, 0), "momentum": (-1.5, 0.3), "rmsprop": (-2.5, 0.5)}[optimizer]
    value = offset + (math.log10(rate) - best_rate) ** 2
    if optimizer == "momentum":
        value += 4 * (trial.suggest_float("momentum", 0, 0.99) - 0.9) ** 2
    value += 0.1 * (trial.suggest_int("layers", 1, 6) - 3) ** 2
    value += {"tanh": 0.4, "relu": 0, "elu": 0.8, "sigmoid": 1.2}[
        trial.suggest_categorical("activation", ["tanh", "relu", "elu", "sigmoid"])
    ]
    return value + 2 * (trial.suggest_float("clip", 0, 1) - 0.3) ** 2


FUNCTIONS = {  # and the deviation of the noise
    "branin": (ask_branin, 0),
    "hartmann6": (ask_hartmann6, 0),
    "rosenbrock5": (ask_rosenbrock5, 0),
    "mixed": (ask_mixed, 0),
    "noisy": (ask_branin, 2),
}
SAMPLERS = {
    "tpe": {
        "TPE": lambda seed: optuna.samplers.TPESampler(seed=seed),
        "TPE multivariate": lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True),
    },
    "cmaes": {"CMA-ES": lambda seed: optuna.samplers.CmaEsSampler(seed=seed)},
}


def best_found(function, noise, sampler, trials, seed):
    """The value without noise at the trial that looked best."""
    draws = random.Random(seed)
    study = optuna.create_study(sampler=sampler)
    looked, best = math.inf, math.inf
    for _ in range(trials):
        trial = study.ask()
        value = function(trial)
        seen = value + noise * draws.gauss(0, 1)
        study.tell(trial, seen)
        if seen < looked:
            looked, best = seen, value
    return best


def proposal_s(function, make_sampler, history):
    """Seconds of one proposal with a history of so many trials."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    study.optimize(function, n_trials=history)
    study.sampler = make_sampler(1)
    seconds = []
    for _ in range(7):
        start = time.perf_counter()
        trial = study.ask()
        value = function(trial)
        seconds.append(time.perf_counter() - start)
        study.tell(trial, value)
    return statistics.median(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tune_bench")
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--history", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=1)
    args = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore")

    command = [args.tune_bench, str(args.repetitions), str(args.trials), str(args.history), str(args.first_seed)]
    ours = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"Optuna {optuna.__version__}; medians of {args.repetitions} repetitions of {args.trials} trials; proposals with "
          f"{args.history} trials in the history\n")
    seeds = range(args.first_seed, args.first_seed + args.repetitions)
    print("| function | method | Trireme | Optuna | | proposal, Trireme | Optuna | times |")
    print("|---|---|---|---|---|---|---|---|")
    for name, (function, noise) in FUNCTIONS.items():
        for method, peers in SAMPLERS.items():
            found = ours[f"{method} {name}"]
            best, seconds = statistics.median(found["best"]), found["proposal_s"]
            for peer, make_sampler in peers.items():
                theirs = statistics.median(
                    best_found(function, noise, make_sampler(seed), args.trials, seed) for seed in seeds)
                their_seconds = proposal_s(function, make_sampler, args.history)
                verdict = "as good or better" if best <= theirs else "worse"
                print(f"| {name} | {method}, {peer} | {best:.4g} | {theirs:.4g} | {verdict} | {1e3 * seconds:.3f} ms | "
                      f"{1e3 * their_seconds:.1f} ms | {their_seconds / seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
