"""Saved configurations: a component to JSON and back, of classes on an allow-list alone.

A saved configuration names its class, but that name is only looked up: in the table of our own classes, then
among those that the caller registered. It never decides what is imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast

from .errors import CellblockError, ComponentError

# Provider -> where its class is. The first name of a class is the one it is saved under.
_OURS = {
    "cellblock.SandboxCommandLineCodeExecutor": "cellblock.executors.command_line.sandbox:SandboxCommandLineCodeExecutor",
    "cellblock.SandboxSessionCodeExecutor": "cellblock.executors.session.sandbox:SandboxSessionCodeExecutor",
    "cellblock.LocalCommandLineCodeExecutor": "cellblock.executors.command_line.local:LocalCommandLineCodeExecutor",
    "autogen_ext.code_executors.local.LocalCommandLineCodeExecutor": (
        "cellblock.executors.command_line.local:LocalCommandLineCodeExecutor"
    ),
    "cellblock.DockerCommandLineCodeExecutor": "cellblock.executors.command_line.docker:DockerCommandLineCodeExecutor",
    "autogen_ext.code_executors.docker.DockerCommandLineCodeExecutor": (
        "cellblock.executors.command_line.docker:DockerCommandLineCodeExecutor"
    ),
    "cellblock.DockerSessionCodeExecutor": "cellblock.executors.session.docker:DockerSessionCodeExecutor",
    "cellblock.JupyterCodeExecutor": "cellblock.executors.jupyter.local:JupyterCodeExecutor",
    "autogen_ext.code_executors.jupyter.JupyterCodeExecutor": "cellblock.executors.jupyter.local:JupyterCodeExecutor",
    "cellblock.DockerJupyterServer": "cellblock.executors.jupyter.servers.docker:DockerJupyterServer",
    "cellblock.DockerJupyterCodeExecutor": "cellblock.executors.jupyter.docker:DockerJupyterCodeExecutor",
    "autogen_ext.code_executors.docker_jupyter.DockerJupyterCodeExecutor": (
        "cellblock.executors.jupyter.docker:DockerJupyterCodeExecutor"
    ),
}
# Written by `register_component` alone: what the caller allows holds for the whole process, as imports do.
_registered: dict[str, type[Component]] = {}


@dataclass(frozen=True, kw_only=True)
class ComponentModel:
    """A component's configuration, ready to be saved.

    provider            name of the class, as the allow-list has it
    component_type      what it is, such as "code_executor"
    version             version of the class when it was saved
    component_version   the same, under AutoGen's newer name; None means the current one
    description, label  for people; not used in loading
    config              what the class makes itself from: JSON values only
    """

    provider: str
    component_type: str | None = None
    version: int | None = None
    component_version: int | None = None
    description: str | None = None
    label: str | None = None
    config: Mapping[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        for item in fields(self):
            value: object = getattr(self, item.name)
            kind = _KINDS[item.name]
            if isinstance(value, bool) or not isinstance(value, kind):
                raise ComponentError(f"{item.name!r} of a component cannot be {value!r:.200}.")
        object.__setattr__(self, "config", _json_copy(self.config, self.provider))

    def to_dict(self) -> dict[str, Any]:
        """Give the configuration as JSON values."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {**values, "config": _json_copy(self.config, self.provider)}

    def to_json(self, *, indent: int | None = None) -> str:
        """Give the configuration as JSON text."""
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ComponentModel:
        """Make a configuration from `to_dict`'s values. Unknown keys raise `ComponentError`."""
        unknown = sorted(str(name) for name in set(values) - set(_KINDS))
        if unknown:
            raise ComponentError(f"Unknown keys in a component: {', '.join(unknown)}.")
        if "provider" not in values:
            raise ComponentError("A component must name its class under 'provider'.")
        return cls(**values)

    @classmethod
    def from_json(cls, text: str | bytes) -> ComponentModel:
        """Make a configuration from `to_json`'s text."""
        try:
            values: object = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ComponentError(f"A component cannot be read as JSON: {error}.") from error
        if not isinstance(values, dict):
            raise ComponentError(f"A component must be a JSON object, not {values!r:.200}.")
        return cls.from_dict(cast(dict[str, Any], values))

    def model_dump(self) -> dict[str, Any]:
        """Give `to_dict`, under the name that AutoGen's users call."""
        return self.to_dict()

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """Give `to_json`, under the name that AutoGen's users call."""
        return self.to_json(indent=indent)


class Dumpable(Protocol):
    """An object that gives its values, such as AutoGen's own `ComponentModel`."""

    def model_dump(self) -> dict[str, Any]:
        """Give the values."""
        ...


Saved = ComponentModel | Dumpable | Mapping[str, Any] | str

_TEXT, _NUMBER = (str, type(None)), (int, type(None))
_KINDS: dict[str, tuple[type, ...]] = {
    "provider": (str,),
    "component_type": _TEXT,
    "version": _NUMBER,
    "component_version": _NUMBER,
    "description": _TEXT,
    "label": _TEXT,
    "config": (Mapping,),
}


class Component:
    """Something that can be saved and loaded. A class of this kind fills in `_to_config` and `_from_config`.

    component_type                what the class is, such as "code_executor"
    component_version             raised when its configuration changes
    component_provider_override   the name to be saved under, for a registered class; None: module and name
    """

    component_type: ClassVar[str] = "component"
    component_version: ClassVar[int] = 1
    component_provider_override: ClassVar[str | None] = None

    def dump_component(self) -> ComponentModel:
        """Give the configuration that makes an equal component.

        Raises `ComponentError` when it could not be loaded again: the class is not on the allow-list, cannot
        be saved at all, or has a configuration that JSON cannot hold.
        """
        cls = type(self)
        return ComponentModel(
            provider=_provider(cls),
            component_type=cls.component_type,
            version=cls.component_version,
            component_version=cls.component_version,
            description=(cls.__doc__ or "").strip().partition("\n")[0] or None,
            label=cls.__name__,
            config=self._to_config(),
        )

    @classmethod
    def load_component(cls, model: Saved, expected: type[Any] | None = None) -> Self:
        """Make the component that `model`, a configuration (AutoGen's too), its values or its JSON text, describes.

        Raises `ComponentError` when its class is not on the allow-list, or is not this one and `expected`.
        """
        component = _load(model, cls, expected or cls)
        assert isinstance(component, cls)
        return component

    def _to_config(self) -> dict[str, object]:
        """Give what `_from_config` needs, as JSON values."""
        raise ComponentError(f"A {type(self).__name__} cannot be saved.")

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        """Make one from `_to_config`'s values."""
        raise ComponentError(f"A {cls.__name__} cannot be made from a saved configuration.")

    @classmethod
    def _from_config_past_version(cls, config: Mapping[str, object], version: int) -> Self:
        """Make one from values that an older version of the class saved."""
        raise ComponentError(
            f"This configuration is of version {version} of {cls.__name__}; "
            f"only version {cls.component_version} can be loaded. Save it anew."
        )


ComponentT = TypeVar("ComponentT", bound=Component)


def register_component(cls: type[ComponentT], *aliases: str) -> type[ComponentT]:
    """Allow `cls` to be loaded, under its own name and `aliases`, and give it back.

    A name that is another's raises `ComponentError`. A class defined anew, as in a notebook, replaces itself.
    """
    if not issubclass(cast(type[object], cls), Component):
        raise ComponentError(f"{cls.__qualname__} cannot be registered: it is not a Component.")
    names = (_own_name(cls), *aliases)
    for name in names:
        holder = _registered.get(name)
        if name in _OURS or (holder is not None and _place(holder) != _place(cls)):
            raise ComponentError(
                f"{name!r} is the name of another component. Register {_place(cls)} under its own."
            )
    _registered.update(dict.fromkeys(names, cls))
    return cls


def load_component(model: Saved) -> Component:
    """Make the component that `model`, a configuration (AutoGen's too), its values or its JSON text, describes.

    Raises `ComponentError` when its class is not on the allow-list, or the configuration is not one of it.
    """
    return _load(model, Component, Component)


def _load(saved: Saved, *expected: type[Any]) -> Component:
    model = _model(saved)
    cls = _find(model.provider)
    for kind in expected:
        if not issubclass(cls, kind):
            raise ComponentError(f"{model.provider!r} is not a {kind.__name__}.")
    if model.component_type not in (None, cls.component_type):
        raise ComponentError(
            f"{model.provider!r} is a {cls.component_type}, not a {model.component_type}."
        )
    try:
        return _make(cls, model)
    except CellblockError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ComponentError(
            f"The configuration of {model.provider!r} does not fit: {error}"
        ) from error


def _model(saved: Saved) -> ComponentModel:
    if isinstance(saved, ComponentModel):
        return saved
    if isinstance(saved, str):
        return ComponentModel.from_json(saved)
    # What comes out of AutoGen's dump_component() is an object of pydantic's.
    values: object = (
        saved
        if isinstance(saved, Mapping) or not hasattr(saved, "model_dump")
        else saved.model_dump()
    )
    if not isinstance(values, Mapping):
        raise ComponentError(
            f"{saved!r:.200} is no saved configuration: pass a ComponentModel, its values or its JSON text."
        )
    return ComponentModel.from_dict(cast(Mapping[str, Any], values))


def _make(cls: type[Component], model: ComponentModel) -> Component:
    version = cls.component_version if model.component_version is None else model.component_version
    if version > cls.component_version:
        raise ComponentError(
            f"This configuration is of version {version} of {model.provider!r}; here is version "
            f"{cls.component_version}. Update the package that has the class."
        )
    if version < cls.component_version:
        return cls._from_config_past_version(model.config, version)
    return cls._from_config(model.config)


def _find(provider: str) -> type[Component]:
    """Give the class that the allow-list has under `provider`."""
    if place := _OURS.get(provider):
        # The executors stand below this module, so the table names them and they are imported when needed.
        from importlib import import_module

        module, _, name = place.partition(":")
        return getattr(import_module(module), name)
    if cls := _registered.get(provider):
        return cls
    raise ComponentError(
        f"{provider!r} is not among the classes that may be loaded. "
        "If you trust it, import it and allow it first: cellblock.components.register_component(TheClass)."
    )


def _provider(cls: type[Component]) -> str:
    """Give a name under which `_find` gives exactly `cls`."""
    for provider, place in _OURS.items():
        if place == _place(cls):
            return provider
    name = _own_name(cls)
    if _registered.get(name) is cls:
        return name
    raise ComponentError(
        f"A {cls.__qualname__} cannot be saved: nothing would load {name!r} again. "
        f"Allow it first: cellblock.components.register_component({cls.__name__})."
    )


def _own_name(cls: type[Component]) -> str:
    # A name set on a base is the base's: under it the base would be loaded.
    override: str | None = vars(cls).get("component_provider_override")
    return override or f"{cls.__module__}.{cls.__qualname__}"


def _place(cls: type[Component]) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _json_copy(config: Mapping[str, object], provider: str) -> dict[str, Any]:
    try:
        return json.loads(json.dumps(dict(config), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ComponentError(f"The configuration of {provider!r} is not JSON: {error}.") from error
