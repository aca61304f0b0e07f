#!/usr/bin/env python3
"""Writes full episodes of Gymnasium's classic-control environments as JSON, for src/env/trace_test.cc to replay.

    python/gym_traces.py [--out tests/data/env_traces] [--seed 1] [--resync 0]

One file per environment. An episode holds its start state, actions, and for every step the observation, the reward
and, at the end, whether it terminated or was truncated. Each environment contributes episodes that terminate (where
it can) and ones that run into the time limit.

--resync N adds Gymnasium's full-precision state every N steps to those episodes that are too unstable to compare
otherwise: a balanced pole multiplies a difference in the last bit by 10^16 within 500 steps, so the result depends
on the last bit of the C library's sine. Such episodes are found by replaying them in Gymnasium from a start
state changed in the last bits. The traces in the repository are made without it.
"""
import argparse
import json
import math
import pathlib

import gymnasium
import numpy as np


def random_discrete(count):
    return lambda state, step, rng: int(rng.integers(count))


def random_force(bound):
    """Uniform, and beyond what the environment clips to in about a third of the steps."""
    return lambda state, step, rng: np.float32(rng.uniform(-bound, bound))


def lean(gain):
    """Pushes the cart under the pole; holds it up for as long as one likes when `gain` keeps the cart centred."""
    return lambda s, step, rng: int(s[2] + 0.3 * s[3] + gain * (s[0] + 1.5 * s[1]) > 0)


def pump(low, high):
    """Pushes in the direction of motion, which drives the car out of the valley."""
    return lambda s, step, rng: high if s[1] >= 0 else low


def swing(s, step, rng):
    """Torque along the second joint's speed adds energy to the acrobot."""
    return 2 if s[3] > 0 else 0


def upright(s, step, rng):
    """Pumps energy into the pendulum, then holds it near the top."""
    theta = (s[0] + math.pi) % (2 * math.pi) - math.pi
    if abs(theta) < 0.5:
        return np.float32(-10 * theta - 2 * s[1])
    return np.float32(math.copysign(2, s[1]))


POLICIES = {
    "CartPole-v1": [random_discrete(2)] * 4 + [lean(0.0), lean(0.05), lambda s, t, r: 1],
    "MountainCar-v0": [random_discrete(3), pump(0, 2), lambda s, t, r: 0 if t < 60 else 2],
    "MountainCarContinuous-v0": [random_force(1.5), pump(np.float32(-1.2), np.float32(1.2)),
                                 pump(np.float32(-0.8), np.float32(0.8))],
    "Acrobot-v1": [random_discrete(3), swing, swing, lambda s, t, r: 1],
    "Pendulum-v1": [random_force(3.0), upright, upright],
}


def as_action(env, action):
    return np.array([action], dtype=np.float32) if isinstance(env.action_space, gymnasium.spaces.Box) else action


def run(env, choose, seed, start=None):
    """Plays one episode; returns its states (before each step), actions, observations, rewards and flags."""
    env.reset(seed=seed)
    if start is not None:
        env.unwrapped.state = start
    rng = np.random.default_rng(seed)
    states, actions, observations, rewards = [], [], [], []
    terminated = truncated = False
    while not (terminated or truncated):
        states.append(np.array(env.unwrapped.state, copy=True))
        actions.append(choose(states[-1], len(actions), rng))
        obs, reward, terminated, truncated, _ = env.step(as_action(env, actions[-1]))
        observations.append(np.array(obs, dtype=np.float32))
        rewards.append(float(reward))
    return states, actions, observations, rewards, terminated


def unstable(env, states, actions, observations, seed):
    """Whether a change of the start state in its last bits moves an observation by more than 1e-7."""
    start = states[0] * (1 + 4 * np.finfo(states[0].dtype).eps) if states[0].dtype == np.float64 else states[0]
    replayed = run(env, lambda s, t, r: actions[min(t, len(actions) - 1)], seed, start)[2]
    if len(replayed) != len(observations):
        return True
    return float(np.max(np.abs(np.array(replayed) - np.array(observations)))) > 1e-7


def number(x):
    """The shortest text that gives a float32 back."""
    return float(format(float(x), ".9g"))


def episode(env, choose, seed, resync):
    states, actions, observations, rewards, terminated = run(env, choose, seed)
    result = {
        "start": [float(x) for x in states[0]],
        "actions": [number(a) for a in actions],
        "obs": [[number(x) for x in o] for o in observations],
        "rewards": [float(format(r, ".10g")) for r in rewards],
        "terminated": bool(terminated),
    }
    if resync and unstable(env, states, actions, observations, seed):
        result["resync"] = {str(t): [float(x) for x in states[t]] for t in range(resync, len(states), resync)}
    return result


def write_traces(folder, seed, resync):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, policies in POLICIES.items():
        env = gymnasium.make(name)
        episodes = [episode(env, policy, seed * 100 + i, resync) for i, policy in enumerate(policies)]
        trace = {"env": name, "gymnasium": gymnasium.__version__, "seed": seed, "episodes": episodes}
        (folder / f"{name}.json").write_text(json.dumps(trace, separators=(",", ":")) + "\n")
        lengths = ", ".join(f"{len(e['actions'])}{'t' if e['terminated'] else ''}" for e in episodes)
        print(f"{name}: episodes of {lengths} steps (t: terminated)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--out", default=root / "tests" / "data" / "env_traces", help="folder to write to")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resync", type=int, default=0, help="steps between states in unstable episodes; 0: none")
    args = parser.parse_args()
    write_traces(args.out, args.seed, args.resync)


if __name__ == "__main__":
    main()
