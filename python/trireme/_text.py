"""Python values as the settings of a run are written."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from ._trireme import Error


def plain_text(name: str, value: Any) -> str:
    """`value`, which must be a text that the library can take. `name` is what the caller calls it."""
    if not isinstance(value, str):
        raise Error(f"{name}: a text is needed, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Error(f"{name}: {value!r} has characters that are none (surrogates)") from None
    if "\0" in value:
        raise Error(f"{name}: {value!r} has a zero byte in it")
    return value


def path_text(name: str, path: Any) -> str:
    """A path, however it is given, as a text."""
    try:
        return plain_text(name, os.fsdecode(path))
    except TypeError:
        raise Error(f"{name}: a path is a text or an os.PathLike, not {path!r}") from None


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
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (str, os.PathLike)):
        return path_text(name, value)
    if isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping)):
        return "[" + ", ".join(_element_text(name, element) for element in value) + "]"
    raise Error(f"{name}: a setting is a number, a text, true or false, or a list of these, not {value!r}")


def _element_text(name: str, value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else value_text(name, value)


def settings_texts(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Without those that are None, which is: not given."""
    return [(name, value_text(name, value)) for name, value in settings.items() if value is not None]


def argument_dict(arguments: Any) -> dict[str, Any]:
    """Arguments of an environment; None: no arguments."""
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise Error(f"env_args: a dictionary is needed, {{name: value}}, not a {type(arguments).__name__}")
    for key in arguments:
        plain_text("env_args", key)
    return dict(arguments)


def argument_texts(arguments: Mapping[str, Any] | None) -> list[str]:
    """Arguments of an environment, `key=value` each, so that values keep their types."""
    texts = []
    for key, value in argument_dict(arguments).items():
        if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
            value = value.item()
        if value is None or isinstance(value, (bool, int, float)):
            texts.append(f"{key}={'null' if value is None else json.dumps(value)}")
        elif isinstance(value, str):
            texts.append(f'{key}="{plain_text(f"env_args: {key}", value)}"')
        else:
            raise Error(
                f"env_args: {key} is a {type(value).__name__}; arguments are None, true or false, numbers and texts. "
                "Pass a function that makes the environment instead"
            )
    return texts
