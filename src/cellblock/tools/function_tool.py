"""FunctionTool: a Python function as a tool."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NoReturn, Self, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from ..cancellation import CancellationToken
from ..errors import ComponentError
from .base import BaseTool

_TOKEN = "cancellation_token"  # the parameter that is not the model's


class FunctionTool(BaseTool[BaseModel, Any]):
    """Call `func` with the arguments that the model wrote.

    The schema comes from the signature: types, defaults, and descriptions such as
    `Annotated[str, "The city"]`. A parameter `cancellation_token` receives the token.

    A function that is not async runs in a thread. If its call is cancelled, the thread still runs
    to its end.

    name             None means the function's name
    global_imports   accepted for AutoGen's sake, and ignored

    Raise `ValueError` if a parameter has no type, or takes any number of arguments.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        description: str,
        name: str | None = None,
        global_imports: Sequence[object] = (),
        strict: bool = False,
    ) -> None:
        self._func = func
        function_name = _name_of(func)
        self._signature = inspect.signature(func)
        hints = _type_hints(func, function_name)
        super().__init__(
            _arguments_class(function_name, self._signature, hints),
            hints.get("return", object),
            name or function_name,
            description,
            strict,
        )

    async def run(self, args: BaseModel, cancellation_token: CancellationToken) -> Any:
        """Call the function and return what it returns."""
        positional: list[Any] = []
        by_name: dict[str, Any] = {}
        for name, parameter in self._signature.parameters.items():
            value = cancellation_token if name == _TOKEN else getattr(args, _field_name(name))
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                by_name[name] = value
        if _is_async(self._func):
            return await self._func(*positional, **by_name)
        return await asyncio.to_thread(self._func, *positional, **by_name)

    def _to_config(self) -> NoReturn:
        raise ComponentError(
            f"The tool {self.name!r} is a function, and a function cannot be saved: loading it "
            "would execute source code. Create the FunctionTool again, or write a BaseTool class "
            "and allow it with cellblock.components.register_component."
        )

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        name = config.get("name")
        raise ComponentError(
            f"The function tool {name!r} is not loaded, because that would execute source code of "
            "the configuration. Create it yourself: FunctionTool(func, description=...)."
        )


def _without_partial(func: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(func, functools.partial):
        func = func.func
    return func


def _name_of(func: Callable[..., Any]) -> str:
    func = _without_partial(func)
    return getattr(func, "__name__", type(func).__name__)


def _is_async(func: Callable[..., Any]) -> bool:
    func = _without_partial(func)
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(
        getattr(func, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


def _type_hints(func: Callable[..., Any], name: str) -> dict[str, Any]:
    target: Any = _without_partial(func)
    if not inspect.isroutine(target):
        target = target.__init__ if inspect.isclass(target) else type(target).__call__
    try:
        return get_type_hints(target, include_extras=True)
    except NameError as error:
        raise ValueError(
            f"A type in the signature of {name!r} is not defined: {error}. "
            "Define it at the top level of its module."
        ) from error


def _arguments_class(
    function_name: str, signature: inspect.Signature, hints: Mapping[str, Any]
) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        if name == _TOKEN:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ValueError(
                f"Function {function_name!r} takes any number of arguments ({parameter}). "
                "A model needs to know them: give each a name and a type."
            )
        if name not in hints:
            raise ValueError(
                f"Parameter {name!r} of function {function_name!r} has no type. "
                f"Add one, such as {name}: str."
            )
        fields[_field_name(name)] = _field(name, parameter, hints[name])
    config = ConfigDict(protected_namespaces=(), arbitrary_types_allowed=True)
    return create_model(f"{function_name}args", __config__=config, **fields)


def _field_name(parameter: str) -> str:
    """Return the field for `parameter`; the names that pydantic refuses get another one."""
    if parameter.startswith("_") or hasattr(BaseModel, parameter):
        return f"argument_{parameter}"
    return parameter


def _field(name: str, parameter: inspect.Parameter, hint: Any) -> tuple[Any, Any]:
    """Return the type and the field information of one argument."""
    metadata = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    plain = get_args(hint)[0] if metadata else hint
    described = any(isinstance(item, FieldInfo) and item.description for item in metadata)
    is_model = inspect.isclass(plain) and issubclass(plain, BaseModel)
    options: dict[str, Any] = {}
    if texts := [item for item in metadata if isinstance(item, str)]:
        options["description"] = texts[0]
    elif not described and not is_model:
        options["description"] = name
    if _field_name(name) != name:
        options["alias"] = name
    if parameter.default is not parameter.empty:
        options["default"] = parameter.default
    return hint, Field(**options)
