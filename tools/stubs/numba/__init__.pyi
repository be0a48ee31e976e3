"""What numba's compiler does to types: nothing. numba itself declares none."""

from collections.abc import Callable
from typing import Any, TypeVar, overload

_Function = TypeVar("_Function", bound=Callable[..., Any])

@overload
def njit(function: _Function) -> _Function: ...
@overload
def njit(
    *, cache: bool = ..., nogil: bool = ..., inline: str = ..., fastmath: bool | set[str] = ...
) -> Callable[[_Function], _Function]: ...
