#!/usr/bin/env python3
"""How busy host processes are under other orders in which a worker waits for them: a simulation, for ADR 13.

A worker has some batches, steps all of them, and takes a little time for the actions of each. Most steps of a copy take one unit of time, one
in a hundred takes `long`. Processors are not short. Prints the share of time in which hosts step.
"""

import heapq
import random


def busy(spread, first_come, hosts=2, batches=16, copies=8, steps=128, rare=0.01, long=100.0, action=0.3, seed=1, rollouts=10):
    """spread: a batch lies on all hosts, else on one. first_come: the batch that is done first is served next, else two halves in turn."""
    draw = random.Random(seed)
    now = stepped = 0.0
    for _ in range(rollouts):
        free, done = [now] * hosts, [now] * batches

        def send(batch, at):
            nonlocal stepped
            done[batch] = 0.0
            for host in range(hosts) if spread else [batch % hosts]:
                count = copies // hosts if spread else copies
                time = sum(long if draw.random() < rare else 1.0 for _ in range(count))
                stepped += time
                free[host] = max(free[host], at) + time
                done[batch] = max(done[batch], free[host])

        if first_come:
            waiting = [(now, batch, 0) for batch in range(batches)]
            while waiting:
                at, batch, step = heapq.heappop(waiting)
                now = max(now, at)
                if step < steps:
                    now += action
                    send(batch, now)
                    heapq.heappush(waiting, (done[batch], batch, step + 1))
            continue
        halves = [range(batches // 2), range(batches // 2, batches)]
        for half in halves * steps:
            now = max([now] + [done[batch] for batch in half])
            for batch in half:
                now += action
                send(batch, now)
        now = max([now] + done)
    return stepped / (hosts * now)


print("long  halves  first come  one host each, halves  one host each, first come")
for long in (10.0, 100.0, 1000.0):
    ways = [(True, False), (True, True), (False, False), (False, True)]
    shares = [sum(busy(*way, long=long, seed=seed) for seed in range(3)) / 3 for way in ways]
    print("{:4.0f}  {:6.2f}  {:10.2f}  {:21.2f}  {:25.2f}".format(long, *shares))
