#!/usr/bin/env python3
"""Environment steps per second from Python, on one core: trireme.make_vec against the vector environments of others.

    bench/python_vec.py [--rounds 7] [--seconds 1]

Run it with a Python that trireme is installed for; of the peers those that it has are run: Gymnasium's SyncVectorEnv, PufferLib, EnvPool.
All take random actions that were drawn before. Rounds alternate; medians, and ratios to the first row.
"""
import argparse
import importlib.util
import os
import statistics
import time

import numpy as np


def loop(step, n, seconds, actions):
    """Steps of single environments per second, of a function that takes a step of all."""
    for i in range(20):
        step(actions[i % len(actions)])
    steps, begun = 0, time.perf_counter()
    while True:
        for i in range(len(actions)):
            step(actions[i])
        steps += n * len(actions)
        passed = time.perf_counter() - begun
        if passed > seconds:
            return steps / passed


def draw(n, count=64, dtype=np.int64):
    rng = np.random.default_rng(0)
    return [rng.integers(2, size=n).astype(dtype) for _ in range(count)]


def ours(n, copy):
    import trireme

    envs = trireme.make_vec("CartPole-v1", n, copy=copy)
    envs.reset(seed=0)
    return envs.step, n, draw(n)


def gymnasium_sync(n):
    import gymnasium

    envs = gymnasium.make_vec("CartPole-v1", num_envs=n, vectorization_mode="sync")
    envs.reset(seed=0)
    return envs.step, n, draw(n, 8)


def gymnasium_vector(n):
    import gymnasium

    envs = gymnasium.make_vec("CartPole-v1", num_envs=n, vectorization_mode="vector_entry_point")
    envs.reset(seed=0)
    return envs.step, n, draw(n)


def pufferlib_native(n):
    from pufferlib.ocean.cartpole import cartpole

    envs = cartpole.Cartpole(num_envs=n)
    envs.reset(0)
    return envs.step, n, draw(n, dtype=np.int32)


def envpool_gymnasium(n):
    import envpool

    envs = envpool.make_gymnasium("CartPole-v1", num_envs=n)
    envs.reset()
    return envs.step, n, draw(n, dtype=np.int32)


RIVALS = [
    ("trireme.make_vec, 4096", "trireme", lambda: ours(4096, False)),
    ("trireme.make_vec, 4096, copy=True", "trireme", lambda: ours(4096, True)),
    ("trireme.make_vec, 8", "trireme", lambda: ours(8, False)),
    ("PufferLib, 4096", "pufferlib", lambda: pufferlib_native(4096)),
    ("EnvPool, 8", "envpool", lambda: envpool_gymnasium(8)),
    ("Gymnasium, its own vector CartPole, 4096", "gymnasium", lambda: gymnasium_vector(4096)),
    ("Gymnasium, SyncVectorEnv, 8", "gymnasium", lambda: gymnasium_sync(8)),
]
BAR = 60e6  # steps/s of the first row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1)
    flags = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    made = []
    for name, package, make in RIVALS:
        if importlib.util.find_spec(package) is None:
            print(f"{name}: skipped, {package} is not installed")
            continue
        try:
            made.append((name, make(), []))
        except Exception as error:  # another version than is known here
            print(f"{name}: skipped, {type(error).__name__}: {error}")
    for _ in range(flags.rounds):
        for _, (step, n, actions), rates in made:
            rates.append(loop(step, n, flags.seconds, actions))
    first = statistics.median(made[0][2])
    for name, _, rates in made:
        rate = statistics.median(rates)
        print(f"{name:45} {rate / 1e6:10.3f} M steps/s   {first / rate:10.1f} x")
    print(f"bar: {BAR / 1e6:.0f} M steps/s, {'reached' if first >= BAR else 'missed'}")


if __name__ == "__main__":
    main()
