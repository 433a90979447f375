"""The settings of executors: what a constructor was given, after its checks.

Saved configurations and copies of an executor derive from the fields, whose names are those of the
constructor's parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from ..errors import ComponentError
from ..functions.module import FUNCTION_PROMPT_TEMPLATE, Function, FunctionModule
from ..limits import Limits
from ..policy import Policy

if TYPE_CHECKING:
    from ..containers.gateway.spec import GatewaySpec

Config = dict[str, Any]  # JSON values by the names of a constructor's parameters


@dataclass(frozen=True, kw_only=True)
class ExecutorSettings:
    """Base class of the settings of executors."""


@dataclass(frozen=True, kw_only=True)
class BlockSettings(ExecutorSettings):
    """Settings that most executors have. `functions` includes the name of their module."""

    timeout: float | None
    functions: FunctionModule
    limits: Limits


def as_parameters(names: str) -> dict[str, str]:
    """Return `names` as `_uncalled_overrides`: a subclass passes them to the constructor."""
    return {name: f"Pass {name}= to the constructor instead." for name in names.split()}


S_co = TypeVar("S_co", bound=BlockSettings, covariant=True)


class BlockProperties(Generic[S_co]):
    """The public properties of an executor with `BlockSettings`, as in AutoGen."""

    FUNCTION_PROMPT_TEMPLATE: ClassVar[str] = FUNCTION_PROMPT_TEMPLATE
    _uncalled_overrides: ClassVar[Mapping[str, str]] = as_parameters(
        "timeout limits functions functions_module"
    )
    _settings: S_co

    @property
    def timeout(self) -> float | None:
        """Seconds that one block may run. None means no limit."""
        return self._settings.timeout

    @property
    def limits(self) -> Limits:
        """How much one block may use."""
        return self._settings.limits

    @property
    def functions_module(self) -> str:
        """The name of the module that contains the functions."""
        return self._settings.functions.module_name

    @property
    def functions(self) -> tuple[Function, ...]:
        """The functions that blocks can import."""
        return self._settings.functions.functions

    def format_functions_for_prompt(self, prompt_template: str | None = None) -> str:
        """Describe the functions for a model.

        The template contains the placeholders `$module_name` and `$functions`. None means
        `FUNCTION_PROMPT_TEMPLATE`.
        """
        template = self.FUNCTION_PROMPT_TEMPLATE if prompt_template is None else prompt_template
        return self._settings.functions.format_for_prompt(template)


# Progress reports do not change what an executor does.
_NOT_SAVED = frozenset({"on_pull"})
_CANNOT_BE_SAVED = {
    "input_callback": "a function",
    "server": "a running server",
    "credential": "a secret",
}


def to_config(*settings: ExecutorSettings | GatewaySpec) -> Config:
    """Return the fields of `settings` as JSON values.

    Raise `ComponentError` if one of them cannot be saved.
    """
    config: Config = {}
    for each in settings:
        for item in fields(each):
            value: object = getattr(each, item.name)
            if isinstance(value, FunctionModule):
                config["functions"] = value.to_list()
                config["functions_module"] = value.module_name
            elif item.name in _CANNOT_BE_SAVED:
                if value is not None:
                    raise ComponentError(
                        f"An executor with {item.name} cannot be saved, because that is "
                        f"{_CANNOT_BE_SAVED[item.name]}. Save one without it."
                    )
            elif item.name not in _NOT_SAVED:
                config[item.name] = to_json(value)
    return config


def from_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a constructor whose settings `to_config` returned as `config`."""
    values = dict(config)
    module = values.get("functions_module", "functions")
    if (functions := values.pop("functions", None)) is not None:
        values["functions"] = FunctionModule.from_list(functions, module).functions
    if "limits" in values:
        values["limits"] = Limits.from_dict(values["limits"])
    if values.get("policy") is not None:
        values["policy"] = Policy.from_dict(values["policy"])
    if values.get("virtual_env_context") is not None:
        values["virtual_env_context"] = SimpleNamespace(**values["virtual_env_context"])
    return values


def to_json(value: object) -> object:
    """Return a setting as JSON values, if it is none but can be."""
    if isinstance(value, Limits | Policy):
        return value.to_dict()
    if isinstance(value, SimpleNamespace):
        return dict(vars(value))
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [*cast("tuple[object, ...]", value)]
    return dict(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else value
