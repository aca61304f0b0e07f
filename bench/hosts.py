#!/usr/bin/env python3
"""Environment steps per second of Gymnasium environments: through Trireme's hosts, by bare loops in as many processes, and by
Gymnasium's AsyncVectorEnv. Alternating, several times; prints medians and ratios.

    bench/hosts.py --program build/bench/hosts_bench [--env CartPole-v1] [--hosts 2] [--rounds 5] [--seconds 2]

Runs with the Python that has Gymnasium; --program is bench/hosts_bench.cc."""

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import time


def bare_loop(name, envs, seconds, begin, total):
    import gymnasium

    made = [gymnasium.make(name, disable_env_checker=True) for _ in range(envs)]
    actions = [[env.action_space.sample() for env in made] for _ in range(500)]
    for i, env in enumerate(made):
        env.reset(seed=i)
    calls = [(env.step, env.reset) for env in made]
    begin.wait()
    steps, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for action, (step, reset) in zip(actions[steps // envs % len(actions)], calls):
            _, _, terminated, truncated, _ = step(action)
            if terminated or truncated:
                reset()
        steps += envs
    with total.get_lock():
        total.value += steps


def bare(name, processes, envs, seconds):
    context = multiprocessing.get_context("spawn")
    begin, total = context.Barrier(processes + 1), context.Value("q", 0)
    arguments = (name, envs // processes, seconds, begin, total)
    workers = [context.Process(target=bare_loop, args=arguments) for _ in range(processes)]
    for worker in workers:
        worker.start()
    begin.wait()
    for worker in workers:
        worker.join()
    return total.value / seconds


def asynchronous(name, envs, seconds):
    import gymnasium

    vector = gymnasium.make_vec(name, num_envs=envs, vectorization_mode="async")
    vector.reset(seed=1)
    actions = [vector.action_space.sample() for _ in range(100)]
    steps, begun = 0, time.monotonic()
    while time.monotonic() - begun < seconds:
        for action in actions:
            vector.step(action)
        steps += envs * len(actions)
    rate = steps / (time.monotonic() - begun)
    vector.close()
    return rate


def through_hosts(program, name, hosts, envs, seconds):
    variables = {**os.environ, "TRIREME_PYTHON": sys.executable}
    command = [program, f"gym:{name}", str(hosts), str(envs), str(seconds)]
    return float(subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--hosts", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--envs", type=int, default=256, help="environments, in hosts as in bare loops")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    args = parser.parse_args()
    rates = {"hosts": [], "bare loops": [], "AsyncVectorEnv": []}
    for _ in range(args.rounds):
        rates["hosts"].append(through_hosts(args.program, args.env, args.hosts, args.envs, args.seconds))
        rates["bare loops"].append(bare(args.env, args.hosts, args.envs, args.seconds))
        rates["AsyncVectorEnv"].append(asynchronous(args.env, args.hosts * 4, args.seconds))
    median = {name: statistics.median(values) for name, values in rates.items()}
    for name, value in median.items():
        print(f"{args.env}, {args.hosts} processes: {name:<15} {value:12.0f} steps/s")
    print(f"{args.env}: hosts reach {100 * median['hosts'] / median['bare loops']:.0f} % of bare loops (at least 90)")
    print(f"{args.env}: hosts are {median['hosts'] / median['AsyncVectorEnv']:.1f} times AsyncVectorEnv (at least 3)")


if __name__ == "__main__":
    main()
