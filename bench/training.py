#!/usr/bin/env python3
"""Figures of whole training runs: time to target on CartPole, two workers against one and against two runs at once,
stragglers, what the shared store costs, and start-up.

    bench/training.py [build/trireme [build/plain/trireme]]

The second binary is built with TRIREME_PLAIN_COPIES: its shared store copies without atomics, to show what they cost.
Everything is a median over repetitions; the two sides of a ratio are run alternately.
"""
import concurrent.futures
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

SEEDS = range(1, 11)
REPEATS = 7
NO_EVALUATION = ["--set", "eval_every=0", "--set", "eval_episodes=1"]
# Seconds from the start of the process to an evaluation of 475.
TIME_BARS = {"ppo": 0.5, "a2c": 1.5, "a3c": 1.5, "dqn": 3, "async_dqn": 3}
# In step, a problem with enough work between two exchanges of gradients to be worth two processors.
PPO = ["--env", "CartPole-v1", "--algo", "ppo", "--steps", "500000", "--set", "envs=256", "--set", "horizon=64", "--set",
       "epochs=4", "--set", "minibatches=4", "--set", "hidden=128,128", *NO_EVALUATION]
# Small: gradients are exchanged every 35 us.
CARTPOLE = ["--env", "CartPole-v1", "--algo", "ppo", "--steps", "2000000", "--set", "envs=64", "--set", "horizon=32", "--set",
            "epochs=6", "--set", "minibatches=8", "--set", "hidden=[32,32]", *NO_EVALUATION]
PUFFERLIB = ["--env", "CartPole-v1", "--algo", "ppo", "--steps", "8000000", "--set", "envs=4096", "--set", "horizon=64", "--set",
             "minibatches=8", "--set", "epochs=1", "--set", "hidden=128", "--set", "shared_tower=true", "--set",
             "activation=relu", *NO_EVALUATION]
# Asynchronous: the presets as they are.
A3C = ["--env", "CartPole-v1", "--algo", "a3c", "--steps", "1000000", *NO_EVALUATION]
ASYNC_DQN = ["--env", "CartPole-v1", "--algo", "async_dqn", "--steps", "200000", *NO_EVALUATION]


def run(trireme, *arguments):
    """The last line of a command that prints JSON."""
    folder = tempfile.mkdtemp()
    try:
        done = subprocess.run([trireme, *arguments, "--json", "--out", folder + "/run"], check=True, capture_output=True,
                              text=True)
        return json.loads(done.stdout.splitlines()[-1])
    finally:
        shutil.rmtree(folder)


def start_up(trireme):
    times = []
    for _ in range(21):
        started = time.monotonic()
        subprocess.run([trireme, "--version"], check=True, capture_output=True)
        times.append(time.monotonic() - started)
    print(f"start-up of the binary: {1e3 * statistics.median(times):.1f} ms (bar: 30 ms)")


def time_to_target(trireme, algo, bar):
    results = [run(trireme, "train", "--env", "CartPole-v1", "--algo", algo, "--workers", "2", "--target", "475", "--seed",
                   str(seed)) for seed in SEEDS]
    times = [r["time_to_target_s"] if r["reached_target"] else float("inf") for r in results]
    print(f"CartPole-v1 preset of {algo}, 2 workers, process start to an evaluation >= 475: median "
          f"{statistics.median(times):.3f} s, worst {max(times):.3f} s, {sum(t < float('inf') for t in times)}/{len(times)} "
          f"seeds (bar: {bar} s)", flush=True)


def ratio(name, first, second, bar):
    """steps/s of the command `second` against `first`."""
    rates, ratios = ([], []), []
    for _ in range(REPEATS):
        for side, command in enumerate((first, second)):
            rates[side].append(run(*command)["steps_per_s"])
        ratios.append(rates[1][-1] / rates[0][-1])
    print(f"{name}: {statistics.median(ratios):.2f} times ({statistics.median(rates[0]):,.0f} -> "
          f"{statistics.median(rates[1]):,.0f} steps/s; bar: {bar})", flush=True)


def against_two_alone(trireme, name, problem, bar):
    """Two workers in step against two runs of one worker at the same time, which share nothing but the machine: what
    waiting for each other costs, apart from what two busy processors cost each other."""
    def rate(workers):
        return run(trireme, "train", *problem, "--workers", str(workers))["steps_per_s"]
    sums, pairs = [], []
    for _ in range(9):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            sums.append(sum(pool.map(rate, (1, 1))))
        pairs.append(rate(2))
    shares = [pair / alone for pair, alone in zip(pairs, sums)]
    print(f"{name}, two workers in step: {100 * statistics.median(shares):.1f} % of two runs of one worker at the same time "
          f"({statistics.median(sums):,.0f} -> {statistics.median(pairs):,.0f} steps/s; bar: {bar} %)", flush=True)


def on_server(trireme, problem):
    """Two worker processes and one server process: steps/s, updates, wall time, and processor time of both kinds."""
    folder = tempfile.mkdtemp()
    address = f"unix:{folder}/socket"
    server = subprocess.Popen([trireme, "server", "--listen", address, "--dir", folder + "/state", "--quiet"],
                              stdout=subprocess.PIPE)
    try:
        server.stdout.readline()  # it listens
        workers = [subprocess.Popen([trireme, "train", *problem, "--store", "server", "--servers", address, "--workers", "1",
                                     "--json", "--out", f"{folder}/{i}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                   for i in range(2)]
        results = [json.loads(worker.communicate()[0].splitlines()[-1]) for worker in workers]
        server.terminate()
        _, _, usage = os.wait4(server.pid, 0)
        server = None
        return {"steps_per_s": max(result["steps_per_s"] for result in results),
                "rounds": sum(result["rounds"] for result in results),
                "wall_s": max(result["wall_s"] for result in results),
                "workers_s": sum(result["cpu_s"] for result in results),
                "server_s": usage.ru_utime + usage.ru_stime}
    finally:
        if server:
            server.kill()
            server.wait()
        shutil.rmtree(folder)


def through_server(trireme, name, problem):
    """Also where the time of two processors goes, per update: what workers need more than with shared memory are messages."""
    threads, processes = [], []
    for _ in range(REPEATS):
        threads.append(run(trireme, "train", *problem, "--workers", "2"))
        processes.append(on_server(trireme, problem))
    shared, server = (statistics.median(r["steps_per_s"] for r in side) for side in (threads, processes))
    print(f"{name}, two worker processes through one server against two threads on the shared store: {server / shared:.2f} "
          f"times ({shared:,.0f} -> {server:,.0f} steps/s; bar: 0.4)")

    def per_update(runs, seconds):
        return 1e6 * statistics.median(seconds(r) / r["rounds"] for r in runs)
    alone = per_update(threads, lambda r: r["cpu_s"])
    workers = per_update(processes, lambda r: r["workers_s"])
    applying = per_update(processes, lambda r: r["server_s"])
    total = per_update(processes, lambda r: 2 * r["wall_s"])
    print(f"    of {total:.0f} us of two processors per update: {alone:.0f} us computing as with the shared store, "
          f"{workers - alone:.0f} us messages and crowding in the workers, {applying:.0f} us the server, "
          f"{total - workers - applying:.0f} us nobody", flush=True)


def without(arguments, flag):
    at = arguments.index(flag)
    return arguments[:at] + arguments[at + 2:]


def straggler(trireme, name, problem):
    """Four workers, one of them five times as slow. "kept": of the sum of the workers' own rates."""
    rows = [[], []]
    for _ in range(3):
        for side, slow in enumerate(([], ["--straggler", "worker=3,factor=5"])):
            report = run(trireme, "bench", "speedup", *problem, "--workers", "4", "--repeats", "1", *slow)
            rows[side].append(report["rows"][0])
    plain, slowed = (statistics.median(r["steps_per_s"] for r in side) for side in rows)
    kept = statistics.median(r["kept"] for r in rows[1])
    idle = statistics.median(r["idle"] for r in rows[1])
    print(f"{name}, 4 workers, one 5 times slower: keeps {100 * kept:.0f} % of the sum of the workers' own rates, idle "
          f"{100 * idle:.0f} %; {slowed:,.0f} steps/s, without the straggler {plain:,.0f}, {slowed / plain:.2f} of it "
          f"(waiting for nobody: 0.8; the straggler's pace: 0.2)", flush=True)


def main():
    trireme = sys.argv[1] if len(sys.argv) > 1 else "build/trireme"
    plain = sys.argv[2] if len(sys.argv) > 2 else None
    train = [trireme, "train"]
    start_up(trireme)
    for algo, bar in TIME_BARS.items():
        time_to_target(trireme, algo, bar)
    one, two = ["--workers", "1"], ["--workers", "2"]
    ratio("PPO, two workers against one, same problem, same result", [*train, *PPO, *one], [*train, *PPO, *two], 1.8)
    for name, problem, bar in (("CartPole preset of ppo", CARTPOLE, 97), ("PPO, 128-128, mini-batches of 4096", PPO, 97),
                               ("PPO, PufferLib's settings", PUFFERLIB, 95)):
        against_two_alone(trireme, name, problem, bar)
    for name, problem, algo in (("A3C", A3C, "a2c"), ("asynchronous DQN", ASYNC_DQN, "dqn")):
        ratio(f"{name}, two workers against one", [*train, *problem, *one], [*train, *problem, *two], 1.8)
        through_server(trireme, name, problem)
        if plain:
            ratio(f"{name}, two workers, relaxed atomics against plain copies", [plain, "train", *problem, *two],
                  [*train, *problem, *two], 0.97)
        local = [*train, *("--algo", algo), *without(problem, "--algo"), *one, "--set", "shards=1", "--store", "local"]
        for share in ("true", "false"):
            ratio(f"{name}, one worker, store shared against local, same result, share_moments={share}", local,
                  [*train, *problem, *one, "--set", f"share_moments={share}"], "none")
    straggler(trireme, "A3C (nobody waits)", A3C)
    straggler(trireme, "A2C (in step)", [*without(A3C, "--algo"), "--algo", "a2c", "--set", "shards=4"])


if __name__ == "__main__":
    main()
