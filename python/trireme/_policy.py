"""What a run has learned, ready to act."""

from __future__ import annotations

import os
import secrets
import threading
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _trireme
from ._trireme import Error


class Policy:
    """A trained policy. Made by `load`, or taken from a `Run`.

    May be used from several threads at once; they act one after the other, without the interpreter's lock.
    """

    def __init__(self, path: str | os.PathLike[str], which: str = "best") -> None:
        self._native = _trireme.Policy(os.fspath(path), which)
        self._spec = self._native.spec
        self._shape = tuple(self._spec["obs_shape"])
        self._dtype = np.dtype(self._spec["obs_type"])
        self._low, self._high = (np.array(self._spec[side], np.float32) for side in ("action_low", "action_high"))
        self._choices = sum(self._spec["action_parts"])
        self._seed, self._draws, self._lock = secrets.randbits(63), 0, threading.Lock()

    @property
    def env(self) -> str:
        """The environment it was trained on."""
        return self._spec["name"]

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
        """What `predict` takes, as a space of Gymnasium. Several parts are flattened, and bounds are not known."""
        from ._spaces import observation_space

        return observation_space(self._spec)

    @property
    def action_space(self) -> Any:
        """What `predict` gives, as a space of Gymnasium."""
        from ._spaces import action_space

        return action_space(self._spec)

    def seed(self, seed: int) -> None:
        """From now on `predict(..., deterministic=False)` draws the same actions after the same seed."""
        with self._lock:
            self._seed, self._draws = int(seed) & (2**64 - 1), 0

    def predict(
        self, obs: ArrayLike, deterministic: bool = True, action_mask: ArrayLike | None = None
    ) -> int | NDArray[Any]:
        """The action for one observation, or the actions for a batch of them.

        Actions are as Gymnasium's `step` takes them: an int for Discrete (an array of int64 for a batch), an array of
        int64 for MultiDiscrete, an array of float32 within the bounds for Box. What the run has learned of the scale of
        observations is applied.

        deterministic: the action that the policy holds for best; otherwise one drawn as in training.
        action_mask: which choices are allowed, for environments that forbid some: 1 or 0 for each choice.

        Raises trireme.Error for another shape, or values that are no numbers.
        """
        rows, single = self._rows(obs)
        n = len(rows)
        actions = np.empty((n, max(len(self._spec["action_parts"]), self._low.size)), np.float32)
        draw = None
        if not deterministic:
            with self._lock:
                draw = (self._seed, self._draws)
                self._draws += 1
        self._native.act(rows, self._masks(action_mask, n), actions, draw)
        if self._spec["action_kind"] == "box":
            np.clip(actions, self._low, self._high, out=actions)
            return actions[0] if single else actions
        chosen = actions.astype(np.int64)
        if self._spec["action_kind"] == "discrete":
            return int(chosen[0, 0]) if single else chosen[:, 0]
        return chosen[0] if single else chosen

    def _rows(self, obs: ArrayLike) -> tuple[NDArray[Any], bool]:
        array = np.asarray(obs)
        single = array.shape == self._shape
        if not single and array.shape[1:] != self._shape or array.ndim == 0:
            raise Error(
                f"an observation of {self.env} has shape {self._shape}, and a batch ({', '.join(['n', *map(str, self._shape)])});"
                f" this one has shape {array.shape}"
            )
        if array.dtype != self._dtype and (array.dtype.kind not in "fiub" or self._dtype == np.uint8):
            raise Error(f"observations of {self.env} are of {self._dtype}, not of {array.dtype}")
        n = 1 if single else len(array)
        return np.ascontiguousarray(array, self._dtype).reshape(n, int(np.prod(self._shape))), single

    def _masks(self, mask: ArrayLike | None, n: int) -> NDArray[np.uint8] | None:
        if not self._spec["masks"]:
            if mask is not None:
                raise Error(f"{self.env} allows every action: there is no action_mask")
            return None
        if mask is None:
            return np.ones((n, self._choices), np.uint8)
        masks = (np.asarray(mask) != 0).astype(np.uint8).reshape(-1)
        if masks.size != n * self._choices:
            raise Error(f"action_mask has {masks.size} elements where {n} x {self._choices} are needed")
        masks = np.ascontiguousarray(masks.reshape(n, self._choices))
        first = 0
        for choices in self._spec["action_parts"]:
            if not masks[:, first : first + choices].any(axis=1).all():
                raise Error("action_mask allows nothing")
            first += choices
        return masks

    def __repr__(self) -> str:
        return f"<trireme.Policy of {self.algo} on {self.env}, {self.which}, after {self.steps} steps>"


def load(path: str | os.PathLike[str], which: str = "best") -> Policy:
    """The policy of the run in a folder, or of one file of it (`checkpoint-*.trireme`, `best-*.trireme`).

    which: "best", that of the best evaluation, or "last", that of the newest checkpoint. The environment is neither
    needed nor made. Raises trireme.Error where there is no run, or nothing was learned yet.
    """
    return Policy(path, which)
