"""Which environment is meant: by name, class, function or instance."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Union

from . import _objects, _trireme
from ._gym_spaces import kind_of
from ._spaces import need_gymnasium
from ._text import argument_dict, plain_text
from ._trireme import Error

EnvLike = Union[str, type, Callable[..., Any]]


@contextmanager
def named(env: EnvLike | None, known_as: str) -> Iterator[str]:
    """The name under which the library finds it meanwhile. `known_as`: that of a run which goes on with it, or empty."""
    if env is None or isinstance(env, str):
        yield plain_text("env", env) if env else known_as
        return
    if not callable(env):
        raise Error(f"an environment is a name, a class or a function that makes one, not a {type(env).__name__}")
    in_here = known_as.startswith(_objects.PREFIX)
    importable = None if in_here else _importable_name(env)
    if importable is not None:
        yield importable
        return
    name = _objects.register(env, known_as if in_here else None)
    try:
        yield name
    finally:
        _objects.forget(name)


def _importable_name(env: Any) -> str | None:
    """Its name as a process of its own finds it, or None where it cannot."""
    name, module = getattr(env, "__qualname__", ""), sys.modules.get(getattr(env, "__module__", ""))
    if module is None or not name.isidentifier() or getattr(module, name, None) is not env:
        return None
    try:
        file = os.path.abspath(inspect.getsourcefile(module) or "")
    except TypeError:
        return None
    if not file.endswith(".py") or not os.path.isfile(file):
        return None
    in_package = "." in module.__name__ or os.path.basename(file) == "__init__.py"
    return f"py:{module.__name__}:{name}" if in_package else f"py:{file}:{name}"


def spaces_of(env: Any) -> tuple[Any, Any]:
    """(observations, actions) of an environment, of one in a vector of them, or of what a class or function makes."""
    spaces = _spaces_at(env)
    if spaces is None and callable(env):
        made = env()
        spaces = _spaces_at(made)
        getattr(made, "close", lambda: None)()
    if spaces is None:
        raise Error(f"env: an environment is needed, with an observation_space and an action_space, not {env!r}")
    return spaces


def _spaces_at(env: Any) -> tuple[Any, Any] | None:
    def find(side: str) -> Any:
        return getattr(env, f"single_{side}", None) or getattr(env, side, None)

    spaces = find("observation_space"), find("action_space")
    return None if any(kind_of(space) is None for space in spaces) else spaces


def maker(env: EnvLike | None, arguments: Mapping[str, Any] | None) -> Callable[[], Any] | None:
    """Makes such an environment in this process, where that needs no looking for it."""
    given = argument_dict(arguments)
    if isinstance(env, str):
        if not env.startswith("gym:"):
            return None
        name = env[len("gym:") :]
        return lambda: need_gymnasium(f"gym:{name}").make(name, **given)
    return None if env is None else lambda: env(**given)


def name_of_instance(env: Any) -> tuple[str, dict[str, Any]]:
    """Name and arguments of an environment that Gymnasium has made: another one like it."""
    spec = getattr(env, "spec", None)
    if spec is None or getattr(spec, "id", None) is None:
        raise Error(
            f"{type(env).__name__} cannot be made again by name: pass the class or a function that makes it instead"
        )
    arguments = {key: value for key, value in dict(spec.kwargs or {}).items() if key != "render_mode"}
    if spec.id in _trireme.env_names() and not arguments and not getattr(spec, "additional_wrappers", ()):
        return spec.id, {}
    if getattr(spec, "additional_wrappers", ()):
        raise Error(f"{spec.id} has wrappers around it: pass a function that makes and wraps it instead")
    return f"gym:{spec.id}", arguments


_lock = threading.Lock()
_hosting = 0  # how many need the path of this Python in the environment
_path_before: str | None = None


@contextmanager
def host_python(name: str, given: MutableMapping[str, Any], key: str) -> Iterator[None]:
    """Processes that step environments run this Python, unless `given` says which, and import what this one can."""
    if not name.startswith(("gym:", "py:")):
        yield
        return
    if os.environ.get("TRIREME_HOST"):
        raise Error(
            "this is a process that steps environments, which has imported a program to find its class there: "
            'put what the program does under `if __name__ == "__main__":`'
        )
    if given.get(key) is not None:
        yield
        return
    given[key] = sys.executable
    _count(1)
    try:
        yield
    finally:
        _count(-1)


def _count(change: int) -> None:
    global _hosting, _path_before
    with _lock:
        if _hosting == 0:
            _path_before = os.environ.get("PYTHONPATH")
        _hosting += change
        if _hosting > 0:
            os.environ["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        elif _path_before is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = _path_before
