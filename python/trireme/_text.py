"""Python values as the settings of a run are written."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from ._trireme import Error


def value_text(name: str, value: Any) -> str:
    """`value` as an assignment `name=value` would have it."""
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        value = value.item()  # a number of NumPy
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isfinite(value) and value == int(value) and abs(value) < 2**53:
            return str(int(value))  # 1e6 is a whole number too
        return repr(value)
    if isinstance(value, (int, str, os.PathLike)):
        return str(value)
    if isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping)):
        return "[" + ", ".join(_element_text(name, element) for element in value) + "]"
    raise Error(f"{name}: a setting is a number, a text, true or false, or a list of these, not {value!r}")


def _element_text(name: str, value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else value_text(name, value)


def settings_texts(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Without those that are None, which is: not given."""
    return [(name, value_text(name, value)) for name, value in settings.items() if value is not None]


def argument_texts(arguments: Mapping[str, Any] | None) -> list[str]:
    """Arguments of an environment, `key=value` each, so that values keep their types."""
    texts = []
    for key, value in (arguments or {}).items():
        if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
            value = value.item()
        if value is None or isinstance(value, (bool, int, float)):
            texts.append(f"{key}={'null' if value is None else json.dumps(value)}")
        elif isinstance(value, str):
            texts.append(f'{key}="{value}"')
        else:
            raise Error(
                f"env_args: {key} is a {type(value).__name__}; arguments are None, true or false, numbers and texts. "
                "Pass a function that makes the environment instead"
            )
    return texts
