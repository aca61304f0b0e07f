"""Trains the three algorithms on an environment of one's own, in a thread each, and shows the best of them at work.

    python examples/python/compare_algorithms.py [steps]
"""

import sys
import tempfile
import threading
from pathlib import Path

import gymnasium
import numpy as np

import trireme


class Lander(gymnasium.Env):
    """Come down to the ground softly, with little fuel: height and speed are seen, the engine is on or off."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    gravity, thrust, dt = -1.0, 2.0, 0.1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.height, self.speed, self.steps = self.np_random.uniform(4, 6), self.np_random.uniform(-1, 0), 0
        return self.observe(), {}

    def observe(self):
        return np.array([self.height, self.speed], np.float32)

    def step(self, action):
        self.steps += 1
        self.speed += self.dt * (self.gravity + self.thrust * action)
        self.height += self.dt * self.speed
        landed = self.height <= 0
        reward = 10 - 5 * abs(self.speed) if landed else -0.05 - 0.01 * action
        return self.observe(), float(reward), bool(landed), self.steps >= 200, {}


def main(steps: int) -> None:
    runs: dict[str, trireme.Run] = {}
    with tempfile.TemporaryDirectory() as folder:

        def train(algo: str) -> None:
            out, settings = Path(folder) / algo, dict(eval_every=steps // 4, eval_episodes=20, learning_rate=2e-3)
            runs[algo] = trireme.train(Lander, algo, steps=steps, seed=1, envs=16, workers=1, out=out, **settings)

        threads = [threading.Thread(target=train, args=(algo,)) for algo in ("ppo", "a2c", "dqn")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for algo, run in runs.items():
            print(f"{algo}: {run['best_return_mean']:.2f} +- {run['best_return_std']:.2f} after {run['best_steps']} steps")

        best = max(runs, key=lambda algo: runs[algo]["best_return_mean"])
        env, policy = Lander(), runs[best].policy
        obs, _ = env.reset(seed=0)
        done = False
        while not done:
            obs, reward, terminated, truncated, _ = env.step(policy.predict(obs))
            done = terminated or truncated
        how = f"touches down at speed {-obs[1]:.2f}" if terminated else "is still in the air"
        print(f"{best} {how} after {env.steps} steps")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
