"""Environments with all kinds of Gymnasium's spaces, for tests. What they are given and what they give is fixed."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Fixed(gymnasium.Env):
    """Gives `obs`, and `expected` as the reward where that is what an action should be."""

    def __init__(self, kind):
        box = spaces.Box(-1, 1, (2,), np.float64)
        self.action_space, self.expected = spaces.Discrete(3), 1
        self.observation_space, self.obs = box, np.array([0.5, 0.25])
        if kind == "dict":  # sorted: a, b, c
            self.observation_space = spaces.Dict(
                {"b": box, "a": spaces.Discrete(3, start=1), "c": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])))}
            )
            self.obs = {"a": 2, "b": np.array([0.5, 0.25]), "c": (np.array([0, 1]), np.array([1, 2]))}
        if kind == "image":
            self.observation_space = spaces.Box(0, 255, (2, 3, 1), np.uint8)
            self.obs = np.arange(6, dtype=np.uint8).reshape(2, 3, 1) * 50
        if kind == "discrete":
            self.observation_space, self.obs = spaces.Discrete(4), np.int64(2)
        if kind == "number":
            self.observation_space, self.obs = spaces.Box(0, 9, (), np.float32), np.float32(7)
        if kind == "start":
            self.action_space, self.expected = spaces.Discrete(3, start=5), 6
        if kind == "multi":
            self.action_space, self.expected = spaces.MultiDiscrete([3, 2, 4], start=[0, 1, 0]), [1, 2, 3]
        if kind == "binary":
            self.action_space, self.expected = spaces.MultiBinary(3), [1, 0, 1]
        if kind == "box":
            self.action_space = spaces.Box(np.array([[-1, -2], [-3, 0]]), np.array([[1, 2], [3, 5]]), dtype=np.float64)
            self.expected = [[1, -2], [0.5, 0]]
        if kind == "text":
            self.observation_space = spaces.Text(5)
        if kind == "tuple action":
            self.action_space = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2)))

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.obs, {}

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        return self.obs, float(np.array_equal(action, self.expected)), False, False, {}

    def flat(self):
        return spaces.flatten(self.observation_space, self.obs)
