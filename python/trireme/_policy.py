"""What a run has learned, ready to act."""

from __future__ import annotations

import os
import secrets
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _trireme
from ._envs import spaces_of
from ._gym_spaces import Offence
from ._rows import ActionValues, ObservationRows
from ._spaces import native_spaces, plain_spaces
from ._text import path_text, plain_text
from ._trireme import Error



class Policy:
    """A trained policy. Made by `load`, or taken from a `Run`.

    May be used from several threads at once; they act one after the other, without the interpreter's lock.
    """

    def __init__(self, path: str | os.PathLike[str], which: str = "best", env: Any = None) -> None:
        self._native = _trireme.Policy(path_text("path", path), plain_text("which", which))
        self._spec = self._native.spec
        self._own: tuple[Any, Any] | None = None  # spaces of the environment, where that was given
        self._seed, self._draws, self._lock = secrets.randbits(63), 0, threading.Lock()
        if env is None:
            self._translate(*plain_spaces(self._spec))
        else:
            self._fit(env)

    def _translate(self, observations: Any, actions: Any) -> None:
        self._observations, self._actions = ObservationRows(observations, self.env), ActionValues(actions)

    def _fit(self, env: Any) -> None:
        """From now on it takes and gives what this environment does."""
        spaces = spaces_of(env)
        try:
            self._translate(*spaces)
        except Offence as offence:
            raise Error(f"env: {offence}") from None
        observations, actions = self._observations.spec, self._actions.spec
        ours = (tuple(self._spec["obs_shape"]), np.dtype(self._spec["obs_type"]), self._spec["action_parts"])
        theirs = (observations.shape, observations.dtype, actions.facts.get("parts", []))
        if ours != theirs or actions.size != max(len(self._spec["action_low"]), len(self._spec["action_parts"])):
            raise Error(f"env: a policy of {self.env} does not fit an environment with {spaces[0]} and {spaces[1]}")
        self._own = spaces

    @property
    def env(self) -> str:
        """The environment it was trained on."""
        return str(self._spec["name"])

    @property
    def algo(self) -> str:
        """The algorithm that has trained it."""
        return self._native.algo

    @property
    def which(self) -> str:
        """"best" or "last". A run that was never evaluated has no best policy: then it is the last one."""
        return self._native.which

    @property
    def steps(self) -> int:
        """Environment steps after which the policy was as it is here."""
        return self._native.steps

    @property
    def observation_space(self) -> Any:
        """What `predict` takes, as a space of Gymnasium; without bounds, unless the environment was given to `load`."""
        return (self._own or native_spaces(self._spec))[0]

    @property
    def action_space(self) -> Any:
        """What `predict` gives, as a space of Gymnasium."""
        return (self._own or native_spaces(self._spec))[1]

    def seed(self, seed: int) -> None:
        """From now on `predict(..., deterministic=False)` draws the same actions after the same seed."""
        with self._lock:
            self._seed, self._draws = int(seed) & (2**64 - 1), 0

    def predict(
        self, obs: Any, deterministic: bool = True, action_mask: Any = None
    ) -> int | NDArray[Any]:
        """The action for one observation, or the actions for a batch of them, in terms of the environment's own spaces.

        obs: as `step` gives it, or a batch as vectors of environments give it: each part of a Dict or Tuple a batch.
        Actions are as `step` takes them: an int for Discrete, otherwise an array of the space's type and shape, within the
        bounds for Box. What the run has learned of the scale of observations is applied.

        deterministic: the action that the policy holds for best; otherwise one drawn as in training.
        action_mask: which choices are allowed, for environments that forbid some: 1 or 0 for each choice, or a tuple with an
            array for each part.

        Raises trireme.Error for another shape, and for values that are no numbers or not finite: no environment is trained on
        that shows any.
        """
        if self._own is None and self._spec["note"]:
            raise Error(
                f"{self.env}: {self._spec['note']}. load(path, env=env) with the environment, or anything that has its "
                "observation_space and action_space, takes and gives what they say"
            )
        rows, single = self._observations.rows(obs)
        n = len(rows)
        actions = np.empty((n, self._actions.spec.size), np.float32)
        draw = None
        if not deterministic:
            with self._lock:
                draw = (self._seed, self._draws)
                self._draws += 1
        self._native.act(rows, self._masks(action_mask, n), actions, draw)
        return self._actions.values(actions, single)

    def _masks(self, mask: Any, n: int) -> NDArray[np.uint8] | None:
        if not self._spec["masks"]:
            if mask is not None:
                raise Error(f"{self.env} allows every action: there is no action_mask")
            return None
        parts = self._spec["action_parts"]
        choices = sum(parts)
        if mask is None:
            return np.ones((n, choices), np.uint8)
        if isinstance(mask, tuple) and len(mask) == len(parts):
            mask = np.concatenate([np.reshape(part, (-1, size)) for part, size in zip(mask, parts)], axis=1)
        masks = np.asarray(mask)
        if masks.size != n * choices:
            raise Error(f"action_mask has {masks.size} elements where {n} x {choices} are needed")
        if masks.dtype.kind not in "biuf" or not ((masks == 0) | (masks == 1)).all():
            raise Error("action_mask has values other than 0 and 1")
        masks = np.ascontiguousarray(masks.reshape(n, choices) != 0).astype(np.uint8)
        if any(not part.any(axis=1).all() for part in np.split(masks, np.cumsum(parts)[:-1], axis=1)):
            raise Error("action_mask allows nothing")
        return masks

    def __repr__(self) -> str:
        return f"<trireme.Policy of {self.algo} on {self.env}, {self.which}, after {self.steps} steps>"


def load(path: str | os.PathLike[str], which: str = "best", env: Any = None) -> Policy:
    """The policy of the run in a folder, or of one file of it (`checkpoint-*.trireme`, `best-*.trireme`).

    which: "best", that of the best evaluation, or "last", that of the newest checkpoint.
    env: the environment that it is for, a vector of them, or a class or function that makes one: its spaces say what
        `predict` takes and gives. Needed only where observations have several parts or are choices, and where choices do
        not count from 0; `predict` says so.

    Raises trireme.Error where there is no run, nothing was learned yet, or the policy does not fit `env`.
    """
    return Policy(path, which, env)


def load_for(folder: Path, which: str, env: Any) -> Policy:
    """The policy, for an environment that is asked for its spaces, and made, only where that is needed."""
    policy = Policy(folder, which)
    if env is not None and policy._spec["note"]:
        policy._fit(env)
    return policy
