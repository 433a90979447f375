"""Functions with the packages and imports that they need where blocks run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar, cast

from ..errors import FunctionError
from .imports import Import, bound_names, import_line, to_import
from .source import require_function

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
Q = ParamSpec("Q")


@dataclass(eq=False)
class FunctionWithRequirements(Generic[T, P]):
    """A function with the packages and imports that it needs. Calling it calls the function."""

    func: Callable[P, T]
    python_packages: Sequence[str] = ()
    global_imports: Sequence[Import] = ()

    def __post_init__(self) -> None:
        self.python_packages = _check_packages(self.python_packages)
        self.global_imports = _check_imports(self.global_imports)
        # updated=(): the __dict__ of a wrapped FunctionWithRequirements would replace these fields.
        functools.update_wrapper(self, self.func, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.func(*args, **kwargs)

    @classmethod
    def from_callable(
        cls,
        func: Callable[Q, R],
        python_packages: Sequence[str] = (),
        global_imports: Sequence[Import] = (),
    ) -> FunctionWithRequirements[R, Q]:
        """Return `func` with its requirements."""
        return FunctionWithRequirements(func, python_packages, global_imports)

    @staticmethod
    def from_str(
        func: str, python_packages: Sequence[str] = (), global_imports: Sequence[Import] = ()
    ) -> FunctionWithRequirementsStr:
        """Return the one function in the source `func`, with its requirements. Does not run it."""
        return FunctionWithRequirementsStr(func, python_packages, global_imports)


@dataclass(eq=False)
class FunctionWithRequirementsStr:
    """The source of exactly one function, with the packages and imports that it needs.

    The source is compiled on creation but not run. Raise `FunctionError` (a `ValueError`) if it is
    invalid.
    """

    func: str
    python_packages: Sequence[str] = ()
    global_imports: Sequence[Import] = ()

    def __post_init__(self) -> None:
        self.python_packages = _check_packages(self.python_packages)
        self.global_imports = _check_imports(self.global_imports)
        require_function(self.func)

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            "String based function with requirement objects are not directly callable"
        )


Function = Callable[..., Any] | FunctionWithRequirementsStr


def with_requirements(
    python_packages: Sequence[str] = (), global_imports: Sequence[Import] = ()
) -> Callable[[Callable[P, T]], FunctionWithRequirements[T, P]]:
    """Decorate a function with the packages and imports that it needs where blocks run.

    The imports are placed at the top of the module from which blocks import the function.
    """
    packages, imports = _check_packages(python_packages), _check_imports(global_imports)

    def decorate(func: Callable[P, T]) -> FunctionWithRequirements[T, P]:
        return FunctionWithRequirements(func, packages, imports)

    return decorate


def as_own_class(item: object) -> object:
    """Return AutoGen's function with requirements as Cellblock's object; others unchanged."""
    if isinstance(item, FunctionWithRequirements | FunctionWithRequirementsStr | type):
        return cast(object, item)
    if not all(hasattr(item, name) for name in ("func", "python_packages", "global_imports")):
        return item
    found = cast(Any, item)
    parts = found.func, found.python_packages, found.global_imports
    if isinstance(found.func, str):
        return FunctionWithRequirementsStr(*parts)
    return FunctionWithRequirements[Any, ...](*parts)


def _check_packages(values: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(cast(object, values), list | tuple):
        raise FunctionError(f"python_packages must be a list of requirements, not {values!r}.")
    for value in values:
        # An installer would read a leading dash as an option.
        if (
            not isinstance(cast(object, value), str)
            or not value.isprintable()
            or value[:1] in ("", "-", " ")
        ):
            raise FunctionError(
                f"{value!r} in python_packages is not a requirement such as 'pandas>=2'."
            )
    return tuple(values)


def _check_imports(values: Sequence[Import]) -> tuple[Import, ...]:
    if not isinstance(cast(object, values), list | tuple):
        raise FunctionError(f"global_imports must be a list of imports, not {values!r}.")
    imports = tuple(to_import(value) for value in values)
    for item in imports:
        bound_names(import_line(item))
    return imports
