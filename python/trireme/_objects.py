"""Environments of this interpreter, stepped under its lock: lambdas, closures, classes of an interactive session.

The module (module/objects.cc) asks here by name, and gives the memory that everything is written to. How spaces become
rows of numbers is as in the processes that step other environments (_gym_spaces.py).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ._gym_spaces import Actions, Observations, Offence, check_reset, check_step, notes_of
from ._trireme import Error

PREFIX = "object:"

_lock = threading.Lock()
_makers: dict[str, tuple[Callable[..., Any], int]] = {}  # what makes them, and how often it was registered


def register(make: Callable[..., Any], known_as: str | None = None) -> str:
    """The name under which `make` is found until forget(): `known_as`, or one that tells what it is."""
    plain = re.sub(r"[^A-Za-z0-9_.]+", "", getattr(make, "__qualname__", type(make).__name__).split(".")[-1])
    with _lock:
        for number in range(1, 1 << 30):
            name = known_as or PREFIX + (plain or "env") + (f"-{number}" if number > 1 else "")
            found, times = _makers.get(name, (make, 0))
            if found is make:
                _makers[name] = (make, times + 1)
                return name
            if known_as:
                raise Error(f"{known_as} is being trained on already")
    raise AssertionError


def forget(name: str) -> None:
    """As often as it was registered."""
    with _lock:
        if name in _makers:
            make, times = _makers.pop(name)
            if times > 1:
                _makers[name] = (make, times - 1)


def find(name: str, arguments: dict[str, Any]) -> Source:
    with _lock:
        make, _ = _makers.get(name, (None, 0))
    if make is None:
        raise Error(
            f"{name} was made by a Python program, which must say again how: trireme.train(env, resume=...), or "
            "load(path, env) of a model"
        )
    return Source(name, make, arguments)


class Source:
    """Makes copies of an environment."""

    def __init__(self, name: str, make: Callable[..., Any], arguments: dict[str, Any]) -> None:
        self.name, self._make, self._arguments = name, make, arguments
        self._spare: Any = None

    def make(self) -> Any:
        env, self._spare = self._spare, None
        if env is not None:
            return env
        env = self._make(**self._arguments)
        missing = [n for n in ("reset", "step", "observation_space", "action_space") if not hasattr(env, n)]
        if missing:
            raise Error(f"{self.name}: {type(env).__name__} is no environment: it has no {', '.join(missing)}")
        return env

    def describe(self) -> dict[str, Any]:
        """What it shows and takes. The environment that is made to be asked becomes the first copy."""
        env = self.make()
        try:
            observations, actions = Observations(env.observation_space), Actions(env.action_space)
            _, info = check_reset(env.reset(seed=0))
        except Offence as offence:
            raise Error(f"{self.name}: {offence}") from None
        self._spare = env
        spec, facts = getattr(env, "spec", None), actions.facts
        single = facts.get("single", False)
        return {
            "obs_shape": list(observations.shape),
            "obs_type": "uint8" if observations.bytes else "float32",
            "action_kind": "box" if facts["kind"] == "box" else "discrete" if single else "multi_discrete",
            "action_parts": facts.get("parts", []),
            "action_low": facts.get("low", []),
            "action_high": facts.get("high", []),
            "note": notes_of(observations, actions),
            "masks": "action_mask" in info and actions.choices > 0,
            "max_episode_steps": int(getattr(spec, "max_episode_steps", None) or 0),
            "reward_threshold": getattr(spec, "reward_threshold", None),
        }

    def make_copies(self, n: int, *memory: np.ndarray) -> Copies:
        return Copies(self, [self.make() for _ in range(n)], *memory)


class Copies:
    """Copies that are stepped together; the next episode begins in the step that ends one."""

    def __init__(
        self,
        source: Source,
        envs: list[Any],
        actions: np.ndarray,
        obs: np.ndarray,
        final_obs: np.ndarray,
        masks: np.ndarray,
        final_masks: np.ndarray,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> None:
        self._name, self._envs = source.name, envs
        self._observations, self._actions = Observations(envs[0].observation_space), Actions(envs[0].action_space)
        dtype = self._observations.dtype
        self._obs, self._final_obs = obs.view(dtype), final_obs.view(dtype)
        self._masks, self._final_masks = masks, final_masks
        self._rewards, self._terminated, self._truncated = rewards[:, 0], terminated[:, 0], truncated[:, 0]
        box = self._actions.kind == "Box"
        self._given = actions
        self._taken = np.empty(actions.shape, np.float32 if box else np.int32)
        self._bounds = tuple(np.array(self._actions.facts[k], np.float32) for k in ("low", "high")) if box else None
        self._read = self._actions.reader(self._taken.data.cast("B"), len(envs))
        self._steps = 0

    def reset(self, seeds: list[int]) -> None:
        """The first episodes, by these seeds; the generators of the environments go on from there."""
        self._steps = 0
        for i, (env, seed) in enumerate(zip(self._envs, seeds)):
            self._begin(i, env.reset(seed=seed))
        self._check_numbers(self._obs)

    def step(self) -> None:
        self._steps += 1
        if self._bounds is None:
            self._taken[:] = self._given
        else:
            np.clip(self._given, *self._bounds, out=self._taken)
        ended = False
        for i, action in enumerate(self._read()):
            env = self._envs[i]
            try:
                obs, reward, terminated, truncated, info = check_step(env.step(action), self._masks.size > 0)
                self._rewards[i] = reward
                if terminated or truncated:
                    ended = True
                    (self._terminated if terminated else self._truncated)[i] = 1
                    self._write(self._final_obs, self._final_masks, i, obs, info)
            except (Offence, TypeError, ValueError) as offence:
                if isinstance(offence, Offence):
                    raise Error(f"{self._where(i)}: {offence}") from None
                raise
            if terminated or truncated:
                self._begin(i, env.reset())
            else:
                self._try_write(i, obs, info)
        self._check_numbers(self._obs)
        if ended:
            done = (self._terminated | self._truncated) != 0
            self._check_numbers(self._final_obs[done], np.flatnonzero(done))
        self._check_numbers(self._rewards, what="reward")

    def close(self) -> None:
        for env in self._envs:
            getattr(env, "close", lambda: None)()

    def _begin(self, i: int, result: Any) -> None:
        try:
            obs, info = check_reset(result)
        except Offence as offence:
            raise Error(f"{self._where(i)}: {offence}") from None
        self._try_write(i, obs, info)

    def _try_write(self, i: int, obs: Any, info: dict[str, Any]) -> None:
        try:
            self._write(self._obs, self._masks, i, obs, info)
        except Offence as offence:
            raise Error(f"{self._where(i)}: {offence}") from None

    def _write(self, rows: np.ndarray, masks: np.ndarray, i: int, obs: Any, info: dict[str, Any]) -> None:
        self._observations.write(obs, rows[i], lambda text: None)
        if masks.size:
            mask = info.get("action_mask")
            masks[i] = 1 if mask is None else self._actions.mask(mask)
        elif self._actions.choices > 0 and isinstance(info, dict) and "action_mask" in info:
            raise Offence('info["action_mask"] was not there at the first reset: say there, too, what is allowed')

    def _where(self, i: int) -> str:
        return f"{self._name}, environment {i} at step {self._steps}"

    def _check_numbers(self, rows: np.ndarray, which: np.ndarray | None = None, what: str = "observation") -> None:
        if rows.dtype == np.uint8 or np.isfinite(rows).all():
            return
        bad = int(np.flatnonzero(~np.isfinite(rows.reshape(len(rows), -1)).all(axis=1))[0])
        i = bad if which is None else int(which[bad])
        raise Error(f"{self._where(i)}: its {what} is not finite: {rows[bad]}")
