"""Saved components can be loaded, and only classes on the allow-list are."""

import importlib.util
import json
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
from pydantic import BaseModel

from cellblock.compat import autogen_core
from cellblock.components import (
    Component,
    ComponentModel,
    load_component,
    register_component,
)
from cellblock.errors import ComponentError

# Written by AutoGen 0.7.5.
AUTOGEN_LOCAL = """{
  "provider": "autogen_ext.code_executors.local.LocalCommandLineCodeExecutor",
  "component_type": "code_executor",
  "version": 1,
  "component_version": 1,
  "description": "A code executor class that executes code in a local command line environment.",
  "label": "LocalCommandLineCodeExecutor",
  "config": {
    "timeout": 30, "work_dir": "%s", "functions_module": "tools", "cleanup_temp_files": false
  }
}"""


class Box(Component):
    """Hold one number.

    More about it.
    """

    component_type = "box"

    def __init__(self, size: int) -> None:
        self.size = size

    def _to_config(self) -> dict[str, object]:
        return {"size": self.size}

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        size = config["size"]
        if not isinstance(size, int):
            raise TypeError("size must be a number")
        return cls(size)


class NewerBox(Box):
    component_version = 3

    @classmethod
    def _from_config_past_version(cls, config: Mapping[str, object], version: int) -> Self:
        if version < 2:
            return super()._from_config_past_version(config, version)
        return cls._from_config({"size": config["weight"]})


class NamedBox(Box):
    component_provider_override: ClassVar[str | None] = "tests.NamedBox"


class UnregisteredBox(NamedBox):
    pass


register_component(Box, "tests.OldBox")
register_component(NewerBox)
register_component(NamedBox)


def saved(provider: str, **config: object) -> dict[str, Any]:
    return {"provider": provider, "config": config}


@pytest.mark.parametrize("cls", [Box, NewerBox, NamedBox])
def test_dumped_component_loads_as_its_own_class(cls: type[Box]) -> None:
    model = cls(4).dump_component()
    objects = (model, model.to_dict(), model.model_dump())
    for form in (*objects, model.to_json(), model.model_dump_json(indent=2)):
        box = load_component(form)
        assert type(box) is cls
        assert box.size == 4


def test_dump_describes_the_component() -> None:
    assert Box(1).dump_component().model_dump() == {
        "provider": f"{__name__}.Box",
        "component_type": "box",
        "version": 1,
        "component_version": 1,
        "description": "Hold one number.",
        "label": "Box",
        "config": {"size": 1},
    }
    assert type(load_component(saved("tests.OldBox", size=1))) is Box  # by an alias


def test_provider_name_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted.py").write_text("class Thing: pass\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert importlib.util.find_spec("planted")
    told = r"'planted\.Thing' is not on the list .*register_component"
    with pytest.raises(ComponentError, match=told):
        load_component(saved("planted.Thing"))
    assert "planted" not in sys.modules


def test_a_class_of_autogen_that_is_not_offered_cannot_be_allowed() -> None:
    with pytest.raises(ComponentError, match="of AutoGen that Cellblock does not offer") as caught:
        load_component(saved("autogen_ext.tools.mcp.McpWorkbench"))
    assert "register_component" not in str(caught.value)


def test_class_outside_the_allow_list_is_neither_loaded_nor_dumped() -> None:
    for provider in (
        "os.system",
        "builtins.eval",
        "cellblock.errors.ComponentError",
        "cellblock.executors.command_line.local:LocalCommandLineCodeExecutor",
        f"{__name__}.UnregisteredBox",
        "",
    ):
        with pytest.raises(ComponentError, match="register_component"):
            load_component(saved(provider, size=1))
    with pytest.raises(ComponentError, match=r"register_component\(UnregisteredBox\)"):
        UnregisteredBox(1).dump_component()
    plain: Any = dict
    with pytest.raises(ComponentError, match="not a Component"):
        register_component(plain)


def test_a_name_belongs_to_one_class_unless_it_is_redefined() -> None:
    def define() -> type[Box]:
        class Again(Box):
            pass

        return register_component(Again)

    class Other(Box):
        pass

    class Sub(NamedBox):
        pass

    for name in ("cellblock.LocalCommandLineCodeExecutor", "tests.OldBox"):
        with pytest.raises(ComponentError, match="is already registered for another component"):
            register_component(Other, name)
    with pytest.raises(ComponentError, match="register_component"):
        Other(1).dump_component()
    first, second = define(), define()
    assert type(load_component(second(1).dump_component())) is second
    with pytest.raises(ComponentError):
        first(1).dump_component()
    register_component(Sub)
    assert type(load_component(Sub(1).dump_component())) is Sub
    assert type(load_component(NamedBox(1).dump_component())) is NamedBox


def test_class_loads_only_its_own_type() -> None:
    model = Box(2).dump_component()
    assert Box.load_component(model).size == 2
    assert Component.load_component(model, expected=Box)
    with pytest.raises(ComponentError, match="is not a NewerBox"):
        NewerBox.load_component(model)
    with pytest.raises(ComponentError, match="is not a NamedBox"):
        Component.load_component(model, expected=NamedBox)
    with pytest.raises(ComponentError, match="is a box, not a tool"):
        load_component({**model.to_dict(), "component_type": "tool"})


def test_older_version_is_passed_to_the_class_and_newer_is_refused() -> None:
    name = f"{__name__}.NewerBox"
    box = NewerBox.load_component({**saved(name, weight=7), "component_version": 2})
    assert box.size == 7
    for version, text in ((1, "Save the component again"), (4, "Update the package")):
        with pytest.raises(ComponentError, match=text):
            load_component({**saved(name, size=1), "component_version": version})


def test_invalid_configuration_is_refused_with_the_reason() -> None:
    invalid: list[dict[str, object]] = [{}, {"size": "x"}]
    for config in invalid:
        with pytest.raises(ComponentError, match=r"configuration of .*Box' is invalid: .*size"):
            load_component(saved(f"{__name__}.Box", **config))
    for value in (object(), float("nan")):
        box = Box(1)
        box.size = value  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(ComponentError, match="cannot be expressed in JSON"):
            box.dump_component()


def test_model_does_not_share_its_configuration() -> None:
    config: dict[str, object] = {"list": [1]}
    model = ComponentModel(provider="x", config=config)
    config["list"] = 2
    model.to_dict()["config"]["list"].append(3)
    assert model.to_dict()["config"] == {"list": [1]}


def test_damaged_configuration_is_refused() -> None:
    fields = (
        '"config": []',
        '"config": null',
        '"component_version": "1"',
        '"component_version": true',
        '"label": 1',
        '"more": 1',
    )
    texts = ["", "[]", "{", "[" * 100_000, "{}", '{"provider": 3}']
    for text in [*texts, *(f'{{"provider": "x", {field}}}' for field in fields)]:
        with pytest.raises(ComponentError):
            ComponentModel.from_json(text)


def test_class_without_config_methods_cannot_be_saved_or_loaded() -> None:
    class Empty(Component):
        pass

    register_component(Empty)
    with pytest.raises(ComponentError, match="Empty cannot be saved"):
        Empty().dump_component()
    with pytest.raises(ComponentError, match="Empty cannot be loaded"):
        load_component(saved(f"{__name__}.{Empty.__qualname__}"))


@pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor:UserWarning")
def test_autogen_configuration_loads_as_local_executor(tmp_path: Path) -> None:
    text = AUTOGEN_LOCAL % tmp_path
    assert json.loads(ComponentModel.from_json(text).to_json()) == json.loads(text)
    executor: Any = load_component(text)
    assert type(executor).__name__ == "LocalCommandLineCodeExecutor"
    assert (executor.timeout, executor.functions_module) == (30, "tools")
    dumped = executor.dump_component()
    assert dumped.provider == "cellblock.LocalCommandLineCodeExecutor"
    assert type(load_component(dumped)) is type(executor)


class Label(BaseModel):
    text: str
    size: int | None = None


class Tag(
    autogen_core.ComponentBase[Label],  # pyright: ignore[reportUntypedBaseClass] - imported late
    autogen_core.Component[Label],  # pyright: ignore[reportUntypedBaseClass]
):
    component_config_schema = Label
    component_type = "tag"

    def __init__(self, text: str) -> None:
        self.text = text

    def _to_config(self) -> Any:
        return Label(text=self.text)

    @classmethod
    def _from_config(cls, config: Any) -> Self:
        assert isinstance(config, Label)
        return cls(config.text)


class BoldTag(Tag):
    component_label = "Bold"
    component_description = "A tag in bold."


def test_the_form_of_autogens_page_saves_and_loads_by_its_own_class() -> None:
    model = Tag("red").dump_component()
    assert (model.config, model.label) == ({"text": "red"}, "Tag")
    for form in (
        model,
        model.to_dict(),
        ComponentModel.model_validate(json.loads(model.to_json())),
    ):
        assert Tag.load_component(form).text == "red"
        by_expected: Any = autogen_core.ComponentLoader.load_component(form, Tag)
        assert by_expected.text == "red"
    bold = BoldTag("b").dump_component()
    assert (bold.label, bold.description) == ("Bold", "A tag in bold.")
    for kind in (Component, Box, BoldTag):
        with pytest.raises(ComponentError, match="register_component"):
            kind.load_component(model)
    with pytest.raises(ComponentError, match=r"(?s)configuration of .*Tag' is invalid: .*text"):
        Tag.load_component(saved(f"{__name__}.Tag", size=1))
    for parts in ("ComponentToConfig ComponentFromConfig", "ComponentLoader Component"):
        names = [getattr(autogen_core, name) for name in parts.split()]
        form = types.new_class("Form", (names[0][Label], names[1]))
        assert form.__mro__ == (form, Component, object)
