"""Save components as JSON, and load those whose class is on an allow-list.

A saved configuration names its class. The name is looked up in the table of built-in classes, then
among the classes that the caller registered. It is never imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import GenericAlias
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast

from .errors import CellblockError, ComponentError
from .providers import built_in_providers

# Provider -> import path of its class.
_BUILT_IN = dict(built_in_providers())
# Filled by `register_component` only, for the whole process.
_registered: dict[str, type[Component]] = {}
_AUTOGEN = ("autogen_core.", "autogen_ext.", "autogen_agentchat.")


@dataclass(frozen=True, kw_only=True)
class ComponentModel:
    """The configuration of a component, ready to be saved.

    provider             name of the class on the allow-list
    component_type       kind of component, such as "code_executor"
    version              version of the class when the component was saved
    component_version    the same, under AutoGen's newer name; None means the current version
    description, label   for people; ignored when loading
    config               the values that the class is created from, as JSON values
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
            kind = _FIELD_TYPES[item.name]
            if isinstance(value, bool) or not isinstance(value, kind):
                raise ComponentError(
                    f"Field {item.name!r} of a component cannot be {value!r:.200}."
                )
        object.__setattr__(self, "config", _json_copy(self.config, self.provider))

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as JSON values."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {**values, "config": _json_copy(self.config, self.provider)}

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the configuration as JSON text."""
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ComponentModel:
        """Return the configuration that `to_dict` returned as `values`.

        Raise `ComponentError` for unknown keys.
        """
        unknown = sorted(str(name) for name in set(values) - set(_FIELD_TYPES))
        if unknown:
            raise ComponentError(f"Unknown keys in a component: {', '.join(unknown)}.")
        if "provider" not in values:
            raise ComponentError("A component must have the key 'provider' with its class name.")
        return cls(**values)

    @classmethod
    def model_validate(cls, obj: Mapping[str, Any]) -> ComponentModel:
        """Return `from_dict(obj)`, under AutoGen's name."""
        return cls.from_dict(obj)

    @classmethod
    def from_json(cls, text: str | bytes) -> ComponentModel:
        """Return the configuration that `to_json` returned as `text`."""
        try:
            values: object = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ComponentError(f"The component is not valid JSON: {error}.") from error
        if not isinstance(values, dict):
            raise ComponentError(f"A component must be a JSON object, not {values!r:.200}.")
        return cls.from_dict(cast(dict[str, Any], values))

    def model_dump(self) -> dict[str, Any]:
        """Return `to_dict()`, under AutoGen's name."""
        return self.to_dict()

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """Return `to_json()`, under AutoGen's name."""
        return self.to_json(indent=indent)


class SupportsModelDump(Protocol):
    """An object with pydantic's `model_dump`, such as AutoGen's `ComponentModel`."""

    def model_dump(self) -> dict[str, Any]:
        """Return the fields and their values."""
        ...


SavedComponent = ComponentModel | SupportsModelDump | Mapping[str, Any] | str

_OPTIONAL_TEXT, _OPTIONAL_NUMBER = (str, type(None)), (int, type(None))
_FIELD_TYPES: dict[str, tuple[type, ...]] = {
    "provider": (str,),
    "component_type": _OPTIONAL_TEXT,
    "version": _OPTIONAL_NUMBER,
    "component_version": _OPTIONAL_NUMBER,
    "description": _OPTIONAL_TEXT,
    "label": _OPTIONAL_TEXT,
    "config": (Mapping,),
}


class _ComponentAlias(GenericAlias):
    """`Component[Config]`: a base class, also twice. AutoGen's parts of it are all `Component`."""

    def __mro_entries__(self, bases: Iterable[object]) -> tuple[Any, ...]:
        origin = self.__origin__
        same = [base for base in bases if getattr(base, "__origin__", base) is origin]
        return (origin,) if same[0] is self and origin not in same else ()


class Component:
    """An object that can be saved and loaded. Subclasses implement `_to_config` and `_from_config`.

    component_type                kind of component, such as "code_executor"
    component_version             increased when the format of the configuration changes
    component_provider_override   provider of a registered class; None means module and class name
    component_config_schema       a pydantic class, as in AutoGen: `_to_config` returns an object of
                                  it, and `_from_config` takes one. None: both have JSON values
    component_description         what the class is, for people; None: its docstring says it
    component_label               what people call the class; None: its name
    """

    component_type: ClassVar[str] = "component"
    component_version: ClassVar[int] = 1
    component_provider_override: ClassVar[str | None] = None
    component_config_schema: ClassVar[Any] = None
    component_description: ClassVar[str | None] = None
    component_label: ClassVar[str | None] = None

    def __class_getitem__(cls, parameters: Any) -> Any:
        """Return the class as a base: `Component[Config]`, as in AutoGen."""
        of_generic = getattr(super(), "__class_getitem__", None)
        return _ComponentAlias(cls, parameters) if of_generic is None else of_generic(parameters)

    def dump_component(self) -> ComponentModel:
        """Return a configuration from which an equal component can be loaded.

        Raise `ComponentError` if it could not be loaded: the class is not on the allow-list, does
        not support saving, or has a configuration that JSON cannot express.
        """
        cls = type(self)
        return ComponentModel(
            provider=_provider_of(cls),
            component_type=cls.component_type,
            version=cls.component_version,
            component_version=cls.component_version,
            description=cls.component_description
            or (cls.__doc__ or "").strip().partition("\n")[0]
            or None,
            label=cls.component_label or cls.__name__,
            config=_values_of(self._to_config()),
        )

    @classmethod
    def load_component(cls, model: SavedComponent, expected: type[Any] | None = None) -> Self:
        """Return the component that `model` describes.

        `model` is a configuration, its values or its JSON text. AutoGen's configurations are
        accepted too. Raise `ComponentError` if the class is not on the allow-list, this class or
        `expected`, or is not a subclass of both.
        """
        saved = _to_model(model)
        found = _find_class(saved.provider, cls, expected)
        for kind in (cls, expected or cls):
            if not issubclass(found, kind):
                raise ComponentError(f"{saved.provider!r} is not a {kind.__name__}.")
        if saved.component_type not in (None, found.component_type):
            raise ComponentError(
                f"{saved.provider!r} is a {found.component_type}, not a {saved.component_type}."
            )
        try:
            component = found._load_version(saved)
        except CellblockError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise ComponentError(
                f"The configuration of {saved.provider!r} is invalid: {error}"
            ) from error
        assert isinstance(component, cls)
        return component

    @classmethod
    def _load_version(cls, saved: ComponentModel) -> Self:
        installed = cls.component_version
        version = installed if saved.component_version is None else saved.component_version
        if version > installed:
            raise ComponentError(
                f"This configuration was saved by version {version} of {saved.provider!r}, but "
                f"version {installed} is installed. Update the package that contains the class."
            )
        if version < installed:
            return cls._from_config_past_version(saved.config, version)
        schema = cls.component_config_schema
        return cls._from_config(
            saved.config if schema is None else schema.model_validate(saved.config)
        )

    def _to_config(self) -> dict[str, object]:
        """Return the values that `_from_config` needs, as JSON values."""
        raise ComponentError(f"The component {type(self).__name__} cannot be saved.")

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        """Create an object from the values of `_to_config`."""
        raise ComponentError(
            f"The component {cls.__name__} cannot be loaded from a saved configuration."
        )

    @classmethod
    def _from_config_past_version(cls, config: Mapping[str, object], version: int) -> Self:
        """Create an object from values that an older version of the class saved."""
        raise ComponentError(
            f"This configuration was saved by version {version} of {cls.__name__}, but only "
            f"version {cls.component_version} can be loaded. Save the component again."
        )


ComponentT = TypeVar("ComponentT", bound=Component)


def register_component(cls: type[ComponentT], *aliases: str) -> type[ComponentT]:
    """Allow `cls` to be loaded under its own name and `aliases`, and return `cls`.

    Raise `ComponentError` for a name that belongs to another class. A class that is defined again,
    as in a notebook, replaces the earlier one.
    """
    if not issubclass(cast(type[object], cls), Component):
        raise ComponentError(f"{cls.__qualname__} cannot be registered: it is not a Component.")
    names = (_default_provider(cls), *aliases)
    for name in names:
        holder = _registered.get(name)
        if name in _BUILT_IN or (holder is not None and _import_path(holder) != _import_path(cls)):
            raise ComponentError(
                f"{name!r} is already registered for another component. "
                f"Register {_import_path(cls)} under another name."
            )
    _registered.update(dict.fromkeys(names, cls))
    return cls


def load_component(model: SavedComponent) -> Component:
    """Return the component that `model` describes: a configuration, its values or its JSON text.

    AutoGen's configurations are accepted too. Raise `ComponentError` if the class is not on the
    allow-list or does not accept the configuration.
    """
    return Component.load_component(model)


def _to_model(saved: SavedComponent) -> ComponentModel:
    if isinstance(saved, ComponentModel):
        return saved
    if isinstance(saved, str):
        return ComponentModel.from_json(saved)
    # AutoGen's dump_component() returns a pydantic model.
    values: object = (
        saved
        if isinstance(saved, Mapping) or not hasattr(saved, "model_dump")
        else saved.model_dump()
    )
    if not isinstance(values, Mapping):
        raise ComponentError(
            f"{saved!r:.200} is not a saved configuration. "
            "Pass a ComponentModel, its values or its JSON text."
        )
    return ComponentModel.from_dict(cast(Mapping[str, Any], values))


def _find_class(provider: str, *given: type[Any] | None) -> type[Component]:
    """Return the class that the allow-list has under `provider`, or that of the `given` ones."""
    if path := _BUILT_IN.get(provider):
        # This module is below the executors in the layers, so it imports them by name, on demand.
        from importlib import import_module

        module, _, name = path.partition(":")
        return getattr(import_module(module), name)
    if cls := _registered.get(provider):
        return cls
    for cls in given:
        if cls is not None and issubclass(cls, Component) and _default_provider(cls) == provider:
            return cls
    if provider.startswith(_AUTOGEN):
        raise ComponentError(
            f"{provider!r} is a class of AutoGen that Cellblock does not offer. "
            "`cellblock compat check` on a program that uses it says what to do instead."
        )
    raise ComponentError(
        f"{provider!r} is not on the list of classes that may be loaded. If you trust the class, "
        "import it and allow it first: cellblock.components.register_component(TheClass)."
    )


def _provider_of(cls: type[Component]) -> str:
    """Return a provider for which `_find_class` returns exactly `cls`."""
    for provider, path in _BUILT_IN.items():
        if path == _import_path(cls):
            return provider
    name = _default_provider(cls)
    if _registered.get(name) is cls or cls.component_config_schema is not None:
        return name  # AutoGen's form loads by the class itself, or when it is registered
    raise ComponentError(
        f"The component {cls.__qualname__} cannot be saved: {name!r} is not on the list of classes "
        "that may be loaded. Allow it first: "
        f"cellblock.components.register_component({cls.__name__})."
    )


def _default_provider(cls: type[Component]) -> str:
    # An inherited override names the base class, which would be loaded instead.
    override: str | None = vars(cls).get("component_provider_override")
    return override or f"{cls.__module__}.{cls.__qualname__}"


def _import_path(cls: type[Any]) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _values_of(config: Any) -> dict[str, object]:
    """Return a configuration as values: a pydantic object, as in AutoGen, or values."""
    if isinstance(config, Mapping):
        return dict(cast("Mapping[str, object]", config))
    return config.model_dump(mode="json", exclude_none=True)


def _json_copy(config: Mapping[str, object], provider: str) -> dict[str, Any]:
    try:
        return json.loads(json.dumps(dict(config), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ComponentError(
            f"The configuration of {provider!r} cannot be expressed in JSON: {error}."
        ) from error
