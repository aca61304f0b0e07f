"""Observations as rows that a policy is given, and actions of the rows that it gives: one, or a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._gym_spaces import Actions, Leaf, Observations
from ._trireme import Error


class ObservationRows:
    """Takes what an observation space has, or a batch of it as vectors of environments give it: where an observation has
    several parts (Dict, Tuple), each part is a batch."""

    def __init__(self, space: Any, env: str) -> None:
        self.spec, self._env = Observations(space), env
        self._size = self.spec.leaves[-1].end

    def rows(self, obs: Any) -> tuple[NDArray[Any], bool]:
        """(rows, whether it was a single observation)."""
        leaves = self.spec.leaves
        arrays = [self._part(leaf, obs) for leaf in leaves]
        n = self._count(arrays[0], leaves[0])
        if any(self._count(array, leaf) != n for array, leaf in zip(arrays, leaves)):
            raise Error(f"some parts of this observation of {self._env} are batches of another size than others")
        count = 1 if n is None else n
        flat = [array.reshape(count, int(np.prod(leaf.shape))) for array, leaf in zip(arrays, leaves)]
        if len(leaves) == 1 and leaves[0].kind == "Box":
            with np.errstate(over="ignore"):  # which _finite finds
                rows = np.ascontiguousarray(flat[0], self.spec.dtype)
            return self._finite(rows), n is None
        rows = np.zeros((count, self._size), self.spec.dtype)
        for leaf, values in zip(leaves, flat):
            if leaf.kind in ("Box", "MultiBinary"):
                with np.errstate(over="ignore"):
                    rows[:, leaf.first : leaf.end] = values
            else:
                rows[np.arange(count)[:, None], leaf.first + leaf.offsets + self._choices(leaf, values)] = 1
        return self._finite(rows), n is None

    def _finite(self, rows: NDArray[Any]) -> NDArray[Any]:
        if not self.spec.bytes and not np.isfinite(rows).all():
            i, k = np.argwhere(~np.isfinite(rows))[0]
            leaf = next(leaf for leaf in self.spec.leaves if leaf.first <= k < leaf.end)
            raise Error(
                f"number {k - leaf.first} of observation {i}{leaf.name()} of {self._env} is {rows[i, k]} as a float32:"
                " observations are finite"
            )
        return rows

    def _part(self, leaf: Leaf, obs: Any) -> NDArray[Any]:
        for key in leaf.path:
            try:
                obs = obs[key]
            except (KeyError, IndexError, TypeError):
                raise Error(f"this observation of {self._env} has no {leaf.name()}") from None
        array = np.asarray(obs)
        if array.dtype.kind not in "biuf" or (self.spec.bytes and array.dtype != np.uint8):
            raise Error(f"observations{leaf.name()} of {self._env} are of {self.spec.dtype}, not of {array.dtype}")
        return array

    def _count(self, array: NDArray[Any], leaf: Leaf) -> int | None:
        """How many observations there are, or None: it is a single one."""
        if array.shape == leaf.shape:
            return None
        if array.ndim == 0 or array.shape[1:] != leaf.shape:
            batch = ", ".join(["n", *map(str, leaf.shape)])
            raise Error(
                f"an observation{leaf.name()} of {self._env} has shape {leaf.shape}, and a batch ({batch});"
                f" this one has shape {array.shape}"
            )
        return len(array)

    def _choices(self, leaf: Leaf, values: NDArray[Any]) -> NDArray[np.int64]:
        choices = values.astype(np.int64) - leaf.start
        wrong = (choices < 0) | (choices >= leaf.nvec) | (choices + leaf.start != values)
        if wrong.any():
            raise Error(f"observation{leaf.name()} of {self._env} is {values[wrong][0]}, which is not in its space")
        return choices


class ActionValues:
    """Gives what step() takes."""

    def __init__(self, space: Any) -> None:
        self.spec = Actions(space)
        if self.spec.kind == "Box":
            self._low, self._high = (np.asarray(b, self.spec.dtype) for b in (space.low, space.high))

    def values(self, rows: NDArray[np.float32], single: bool) -> int | NDArray[Any]:
        """rows: [n, size]."""
        shaped = rows.reshape((len(rows), *self.spec.shape))
        if self.spec.kind == "Box":
            actions: NDArray[Any] = np.clip(shaped.astype(self.spec.dtype), self._low, self._high)
        else:
            actions = (shaped.astype(np.int64) + self.spec.start).astype(self.spec.dtype)
        if not single:
            return actions
        return int(actions[0]) if self.spec.kind == "Discrete" else np.asarray(actions[0])
