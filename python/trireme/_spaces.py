"""The spaces of an environment, from the library's description of it."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import gymnasium


def need_gymnasium(what: str) -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise ImportError(f"{what} needs Gymnasium: pip install 'gymnasium>=1.0'") from error
    return gymnasium


def plain_spaces(spec: dict[str, Any]) -> tuple[Any, Any]:
    """(observations, actions), with the attributes of Gymnasium's spaces, which need not be there."""
    shape, dtype = tuple(spec["obs_shape"]), np.dtype(spec["obs_type"])
    most: Any = (0, 255) if dtype == np.uint8 else (-np.inf, np.inf)
    observations = _plain("Box", shape=shape, dtype=dtype, low=most[0], high=most[1])
    kind, parts, whole = spec["action_kind"], spec["action_parts"], np.dtype(np.int64)
    if kind == "discrete":
        return observations, _plain("Discrete", n=parts[0], start=0, dtype=whole)
    if kind == "multi_discrete":
        return observations, _plain("MultiDiscrete", nvec=np.array(parts), start=0, dtype=whole)
    low, high = (np.array(spec[side], np.float32) for side in ("action_low", "action_high"))
    return observations, _plain("Box", shape=low.shape, dtype=low.dtype, low=low, high=high)


def _plain(kind: str, **attributes: Any) -> Any:
    return type(kind, (types.SimpleNamespace,), {})(**attributes)  # spaces are known by the names of their classes


def native_spaces(spec: dict[str, Any]) -> tuple[gymnasium.spaces.Space[Any], gymnasium.spaces.Space[Any]]:
    """(observations, actions), Gymnasium's."""
    observations, actions = plain_spaces(spec)
    return _gymnasium_space(observations), _gymnasium_space(actions)


def _gymnasium_space(space: Any) -> gymnasium.spaces.Space[Any]:
    spaces, kind = need_gymnasium("a space").spaces, type(space).__name__
    made: gymnasium.spaces.Space[Any]
    if kind == "Box":
        made = spaces.Box(space.low, space.high, space.shape, space.dtype.type)
    elif kind == "Discrete":
        made = spaces.Discrete(space.n)
    else:
        made = spaces.MultiDiscrete(space.nvec)
    return made
