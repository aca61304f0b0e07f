"""src/env/gym/spaces.py, which the hosts of environments run as well; what the package uses of it."""

from typing import Any

import numpy
from numpy.typing import NDArray

np: Any  # whoever uses this module says where NumPy is

class Offence(Exception): ...

def kind_of(space: Any) -> str | None: ...
def notes_of(*sides: Observations | Actions) -> str: ...
def check_reset(result: Any) -> tuple[Any, dict[str, Any]]: ...
def check_step(result: Any, masks: bool) -> tuple[Any, float, bool, bool, Any]: ...

class Leaf:
    path: tuple[Any, ...]
    kind: str
    shape: tuple[int, ...]
    first: int
    end: int
    nvec: NDArray[numpy.int64]
    start: NDArray[numpy.int64]
    offsets: NDArray[numpy.int64]
    def name(self) -> str: ...

class Observations:
    leaves: list[Leaf]
    bytes: bool
    dtype: numpy.dtype[Any]
    shape: tuple[int, ...]
    note: str
    def __init__(self, space: Any) -> None: ...
    def write(self, obs: Any, row: NDArray[Any], warn: Any) -> None: ...

class Actions:
    kind: str
    facts: dict[str, Any]
    shape: tuple[int, ...]
    dtype: Any
    start: NDArray[numpy.int64]
    size: int
    choices: int
    note: str
    def __init__(self, space: Any) -> None: ...
    def reader(self, view: memoryview, count: int) -> Any: ...
    def mask(self, mask: Any) -> NDArray[numpy.uint8]: ...
