"""Native environments as those of Gymnasium."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _trireme
from ._envs import host_python
from ._spaces import native_spaces, need_gymnasium
from ._text import argument_texts, plain_text, settings_texts
from ._trireme import Error

if TYPE_CHECKING:
    import gymnasium


def make_vec(
    name: str, num_envs: int, *, copy: bool = False, env_args: dict[str, Any] | None = None, **options: Any
) -> gymnasium.vector.VectorEnv:
    """`num_envs` copies of an environment, stepped together: a `gymnasium.vector.VectorEnv`.

    An episode that ends is followed by the next one in the same step (`AutoresetMode.SAME_STEP`): the observation is the
    first of the new episode, `infos["final_obs"]` the last of the old one.

    name: as for `train`; made for native ones ("CartPole-v1", "plugin:./mine.so").
    copy: arrays of your own from every step. Otherwise arrays are read-only views of the environment's memory, which the
        next step overwrites: nothing is copied.
    env_args: arguments of an environment that takes any. options: its options, `max_steps=200`.

    Rewards are float32. `reset(seed=s)` seeds copy i with s + i, as Gymnasium does; the states that follow from a seed are
    not those of Gymnasium's generator.
    """
    need_gymnasium("make_vec")
    made: gymnasium.vector.VectorEnv = _vector_class()(name, num_envs, copy, options, env_args)
    return made


def make(name: str, *, env_args: dict[str, Any] | None = None, **options: Any) -> gymnasium.Env:
    """One native environment as a `gymnasium.Env`. Many are faster by far: `make_vec`."""
    need_gymnasium("make")
    made: gymnasium.Env = _single_class()(name, options, env_args)
    return made


def _native(name: str, n: int, options: dict[str, Any], env_args: dict[str, Any] | None) -> _trireme.Vec:
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or not 1 <= n <= 2**24:
        raise Error(f"make_vec: the number of environments is a whole number from 1 to {2**24}, not {n!r}")
    if not isinstance(name, str):
        raise Error(
            f"make_vec and make take an environment by name, not {name!r}: a class or function at the top of a file is "
            '"py:file.py:Name"'
        )
    plain_text("make_vec", name)
    with host_python(name, options, "python"):
        return _trireme.Vec(name, int(n), settings_texts(options), argument_texts(env_args))


def _seed_of(generator: np.random.Generator) -> int:
    return int(generator.integers(2**62))


def _check_seed(seed: Any, copies: int = 1) -> int:
    """A seed that all `copies` can follow, counting on."""
    most = 2**64 - copies
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed <= most:
        raise Error(f"a seed is a whole number from 0 to {most}, not {seed!r}")
    return int(seed)


_classes: dict[str, type] = {}
# What an environment in a vector has of the library's memory.
_VIEWS = (
    "_obs",
    "_rewards",
    "_terminated",
    "_truncated",
    "_done",
    "_indices",
    "_final_obs",
    "_masks",
    "_final_masks",
    "_final",
    "_rows",
)


def _vector_class() -> type:
    if "vector" not in _classes:
        _classes["vector"] = _make_vector_class()
    return _classes["vector"]


def _single_class() -> type:
    if "single" not in _classes:
        _classes["single"] = _make_single_class()
    return _classes["single"]


# Made when they are first needed: Gymnasium may not be there.
def _make_vector_class() -> type:
    gym = need_gymnasium("make_vec")

    class NativeVectorEnv(gym.vector.VectorEnv):  # type: ignore[misc, name-defined]
        """See `make_vec`."""

        metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}

        def __init__(
            self, name: str, n: int, copy: bool, options: dict[str, Any], env_args: dict[str, Any] | None
        ) -> None:
            self._native = _native(name, n, options, env_args)
            self._spec = self._native.spec
            self.num_envs, self.copy = int(n), copy
            self.single_observation_space, self.single_action_space = native_spaces(self._spec)
            batch = gym.vector.utils.batch_space
            self.observation_space = batch(self.single_observation_space, self.num_envs)
            self.action_space = batch(self.single_action_space, self.num_envs)
            self._dtype = np.dtype(np.float32 if self._spec["action_kind"] == "box" else np.int64)
            self._shape = self.action_space.shape
            self._fixed = self._native.fixed
            self._began = False
            self._view()

        def _view(self) -> None:
            (
                self._obs,
                self._rewards,
                self._terminated,
                self._truncated,
                self._done,
                self._indices,
                self._final_obs,
                self._masks,
                self._final_masks,
            ) = self._native.views()
            self._final: np.ndarray | None = None
            self._ended = np.empty(0, np.int64)  # where that has something

        def reset(
            self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
        ) -> tuple[np.ndarray, dict[str, Any]]:
            """New episodes everywhere. Without a seed they follow from the last one."""
            self._check_open()
            if options:
                raise Error(f"{self._spec['name']} has no options of a reset, such as {next(iter(options))!r}")
            if isinstance(seed, Iterable) and not isinstance(seed, (str, bytes)):
                seeds = [_check_seed(s) for s in seed]
                if len(seeds) != self.num_envs:
                    raise Error(f"{len(seeds)} seeds were given for {self.num_envs} environments")
                if not self._native.takes_seeds:
                    raise Error(f"{self._spec['name']} takes one seed for all: seed={seeds[0]}")
                super().reset(seed=seeds[0])
                self._begin(seeds, seeds[0])
            elif seed is not None:
                first = _check_seed(seed, self.num_envs)
                super().reset(seed=first)
                self._begin([first + i for i in range(self.num_envs)], first)
            else:
                self._native.reset(_seed_of(self.np_random))
            if not self._fixed:
                self._view()
            self._began = True
            return (self._obs.copy() if self.copy else self._obs), self._mask_info()

        def _begin(self, seeds: list[int], seed: int) -> None:
            if self._native.takes_seeds:
                self._native.reset_each(seeds)
            else:
                self._native.reset(seed)

        def step(
            self, actions: Any
        ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
            """A step of every copy."""
            if not self._began:
                self._check_open()
                raise Error("reset() comes before the first step()")
            if (
                type(actions) is not np.ndarray
                or actions.dtype != self._dtype
                or actions.shape != self._shape
                or not actions.flags.c_contiguous
            ):
                actions = self._convert(actions)
            ended = self._native.step(actions)
            if not self._fixed:
                self._view()
            infos = self._mask_info()
            if ended:
                self._add_final(infos, self._indices[:ended])
            if self.copy:
                return (
                    self._obs.copy(),
                    self._rewards.copy(),
                    self._terminated.copy(),
                    self._truncated.copy(),
                    infos,
                )
            return self._obs, self._rewards, self._terminated, self._truncated, infos

        def _convert(self, actions: Any) -> np.ndarray:
            array = np.asarray(actions)
            if array.shape != self._shape:
                raise Error(f"actions have shape {array.shape}, not {self._shape}")
            if self._dtype == np.int64 and array.dtype.kind not in "iub":
                raise Error(f"actions are choices, whole numbers, not {array.dtype}")
            if self._dtype == np.float32 and array.dtype.kind not in "iubf":
                raise Error(f"actions are numbers, not {array.dtype}")
            return np.ascontiguousarray(array, self._dtype)

        def _mask_info(self) -> dict[str, Any]:
            if self._masks is None:
                return {}
            masks = self._masks.copy() if self.copy else self._masks
            return {"action_mask": masks, "_action_mask": np.ones(self.num_envs, bool)}

        def _add_final(self, infos: dict[str, Any], ended: np.ndarray) -> None:
            """Arrays of objects, as Gymnasium has them: None where no episode has ended."""
            if self.copy:
                done, final, masks = self._done.copy(), np.empty(self.num_envs, object), self._final_masks
                for i, row in zip(ended.tolist(), self._final_obs[ended]):
                    final[i] = row
                masks = None if masks is None else masks.copy()
            else:
                done, final, masks = self._done, self._final_views(), self._final_masks
                final[self._ended] = None
                final[ended] = self._rows[ended]
                self._ended = ended.copy()
            info = {} if masks is None else {"action_mask": masks, "_action_mask": done}
            infos.update(final_obs=final, _final_obs=done, final_info=info, _final_info=done)

        def _final_views(self) -> np.ndarray:
            """What `final_obs` is made of without copying, made when it is first needed."""
            if self._final is None:
                self._final, self._rows = (np.empty(self.num_envs, object) for _ in range(2))
                for i in range(self.num_envs):
                    self._rows[i] = self._final_obs[i]
            return self._final

        def close_extras(self, **_: Any) -> None:
            """Lets go of the environments. Arrays that were given out stay, as they are."""
            self._began = False
            for name in ("_native", *_VIEWS):
                self.__dict__.pop(name, None)

        def _check_open(self) -> None:
            if self.closed:
                raise Error(f"{self!r} was closed: make another")

        def __repr__(self) -> str:
            return f"trireme.make_vec({self._spec['name']!r}, {self.num_envs})"

    return NativeVectorEnv


def _make_single_class() -> type:
    gym = need_gymnasium("make")

    class NativeEnv(gym.Env):  # type: ignore[misc, name-defined]
        """See `make`."""

        metadata: dict[str, Any] = {"render_modes": []}
        render_mode = None

        def __init__(self, name: str, options: dict[str, Any], env_args: dict[str, Any] | None) -> None:
            self._native: _trireme.Vec | None = _native(name, 1, options, env_args)
            self._spec = self._native.spec
            self.observation_space, self.action_space = native_spaces(self._spec)
            self._shape = (1, *(self.action_space.shape or ()))
            self._dtype = np.dtype(np.float32 if self._spec["action_kind"] == "box" else np.int64)
            self._running = False

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[np.ndarray, dict[str, Any]]:
            """A new episode."""
            if self._native is None:
                raise Error("the environment was closed: make another")
            super().reset(seed=None if seed is None else _check_seed(seed))
            if seed is not None and self._native.takes_seeds:
                self._native.reset_each([int(seed)])
            else:
                self._native.reset(_seed_of(self.np_random) if seed is None else int(seed))
            self._running = True
            views = self._native.views()
            return views[0][0].copy(), {} if views[7] is None else {"action_mask": views[7][0].copy()}

        def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
            """A step. After the end of an episode comes reset()."""
            if not self._running or self._native is None:
                if self._native is None:
                    raise Error("the environment was closed: make another")
                raise Error("reset() comes before the first step() of an episode")
            if not self.action_space.contains(action):
                raise Error(f"{action!r} is not an action of {self.action_space}")
            done = self._native.step(np.asarray(action, self._dtype).reshape(self._shape))
            obs, rewards, terminated, truncated, _, _, final_obs, masks, final_masks = self._native.views()
            if done:
                obs, masks, self._running = final_obs, final_masks, False
            info = {} if masks is None else {"action_mask": masks[0].copy()}
            return obs[0].copy(), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), info

        def close(self) -> None:
            """Lets go of the environment."""
            self._native = None

    return NativeEnv
