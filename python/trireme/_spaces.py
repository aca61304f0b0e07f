"""Gymnasium's spaces of an environment, from its description."""

from __future__ import annotations

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


def observation_space(spec: dict[str, Any]) -> gymnasium.spaces.Box:
    spaces = need_gymnasium("a space").spaces
    shape = tuple(spec["obs_shape"])
    if spec["obs_type"] == "uint8":
        return spaces.Box(0, 255, shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, shape, np.float32)


def action_space(spec: dict[str, Any]) -> gymnasium.spaces.Space[Any]:
    spaces = need_gymnasium("a space").spaces
    if spec["action_kind"] == "discrete":
        return spaces.Discrete(spec["action_parts"][0])
    if spec["action_kind"] == "multi_discrete":
        return spaces.MultiDiscrete(spec["action_parts"])
    low, high = (np.array(spec[side], np.float32) for side in ("action_low", "action_high"))
    return spaces.Box(low, high, dtype=np.float32)
