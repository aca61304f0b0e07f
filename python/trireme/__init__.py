"""Trireme: parallel deep reinforcement learning.

    import trireme

    run = trireme.train("CartPole-v1", "ppo", target=475)
    action = run.policy.predict(obs)

`train` trains on an environment by name, class or factory; `load` gives the policy of a run; `make_vec` steps native
environments by the million; `PPO`, `A2C` and `DQN` take the place of Stable-Baselines3's. What goes wrong in a way
that you can mend is raised as `trireme.Error`.
"""

import numpy

from . import _gym_spaces

_gym_spaces.np = numpy  # a file that is also a part of programs which look for NumPy later

from ._policy import Policy, load
from ._train import Run, settings, train
from ._trireme import Error, algorithm_names, env_names, version
from ._vec import make, make_vec
from .sb3 import A2C, DQN, PPO

Error.__module__ = "trireme"
Error.__doc__ = "Something that the caller can mend: the message says what."

__version__ = version()
__all__ = [
    "A2C",
    "DQN",
    "Error",
    "PPO",
    "Policy",
    "Run",
    "algorithm_names",
    "env_names",
    "load",
    "make",
    "make_vec",
    "settings",
    "train",
]
