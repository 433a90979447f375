"""Models and prices from options and environment, the system message, the editor."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import stat
from pathlib import Path

import pytest

from cellblock import CodeBlock, ModelError
from cellblock.cli.chat.approval.approver import risks
from cellblock.cli.chat.approval.editor import edit
from cellblock.cli.chat.model.choice import find_price, make_client
from cellblock.cli.chat.model.prices import describe_usage, known_price
from cellblock.cli.chat.model.system_prompt import system_prompt
from cellblock.cli.chat.settings import ChatSettings
from cellblock.cli.terminal.editor import EditorError, find_editor
from cellblock.models import (
    AnthropicChatCompletionClient,
    OpenAIChatCompletionClient,
    RequestUsage,
)

SETTINGS = ChatSettings(
    executor="session",
    timeout=60,
    memory_bytes=None,
    network=False,
    packages=(),
    work_dir=None,
    task=None,
    model=None,
    base_url=None,
    context_window=None,
    price=None,
    approve="always",
    max_turns=20,
    save=None,
    no_save=False,
    resume=None,
    demo=False,
    image_folder="images",
)
KEYS = {"OPENAI_API_KEY": "sk-nothing", "ANTHROPIC_API_KEY": "sk-nothing"}


def with_model(model: str, base_url: str | None = None) -> ChatSettings:
    return dataclasses.replace(SETTINGS, model=model, base_url=base_url)


@pytest.fixture(scope="module")
def services() -> None:
    """Import the libraries of the services, which takes seconds."""
    importlib.import_module("anthropic.resources.messages")
    importlib.import_module("openai.resources.chat")


def test_the_name_of_the_model_chooses_the_service(
    services: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)
    claude = make_client(with_model("claude-sonnet-4-20250514"), KEYS)
    assert isinstance(claude, AnthropicChatCompletionClient)
    assert isinstance(make_client(with_model("gpt-4o"), KEYS), OpenAIChatCompletionClient)
    other = make_client(with_model("claude-like", "http://127.0.0.1:1/v1"), {})
    assert isinstance(other, OpenAIChatCompletionClient)
    for model in ("some-new-model", "claude-99-new"):  # not known, but can be used
        assert make_client(with_model(model), KEYS).model_info["vision"] is False


def test_a_model_without_its_key_is_not_configured() -> None:
    anthropic, openai = {"ANTHROPIC_API_KEY": "x"}, {"OPENAI_API_KEY": "x"}
    for model, keys in (("gpt-4o", {}), ("gpt-4o", anthropic), ("claude-sonnet-4", openai)):
        with pytest.raises(ModelError, match=f"API_KEY is not set, which {model} needs"):
            make_client(with_model(model), keys)


def test_the_price_is_that_of_the_longest_name_that_fits() -> None:
    prices = {
        "gpt-4o": (2.5, 10),
        "gpt-4o-mini-2024-07-18": (0.15, 0.6),
        "claude-sonnet-4-20250514": (3, 15),
        "claude-opus-4-5-20251101": (5, 25),
        "gpt-4other": None,
        "llama3": None,
    }
    assert {model: known_price(model) for model in prices} == prices


def test_another_server_has_another_price_and_small_costs_more_digits() -> None:
    assert find_price(with_model("gpt-4o")) == (2.5, 10)
    other = with_model("gpt-4o", "http://127.0.0.1:1/v1")
    assert find_price(other) is None
    assert find_price(dataclasses.replace(other, price=(1, 2))) == (1, 2)
    assert describe_usage(RequestUsage(1200, 30), (2.5, 10)).endswith("about $0.0033")
    assert describe_usage(RequestUsage(1_200_000, 0), (2.5, 10)).endswith("about $3.00")


def test_the_model_is_told_what_its_code_can_use() -> None:
    alone = system_prompt(SETTINGS, is_live=True)
    assert "There is no network" in alone
    assert "kept from one block to the next" in alone
    changed = dataclasses.replace(SETTINGS, network=True, packages=("numpy",), timeout=None)
    other = system_prompt(changed, is_live=False)
    assert "The network can be used" in other
    assert "numpy" in other
    assert "fresh process" in other
    assert "seconds" not in other


def test_risks_name_the_block_if_there_are_several() -> None:
    risky = CodeBlock("import socket\n", "python")
    assert risks([risky]) == ["line 1: network (imports socket)"]
    both = risks([CodeBlock("print(1)\n", "python"), risky])
    assert both == ["block 2, line 1: network (imports socket)"]
    many = risks([CodeBlock("import socket\n" * 9, "python")])
    assert many[-1] == "and 4 more"


# the editor


def make_editor(folder: Path, script: str) -> dict[str, str]:
    path = folder / "my editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"EDITOR": f"'{path}' --wait", "PATH": "/usr/bin:/bin"}


def test_one_block_is_edited_in_a_file_of_its_language_and_several_as_markdown(
    tmp_path: Path,
) -> None:
    environment = make_editor(tmp_path, 'case "$2" in *.sh) sed -i s/a/b/ "$2";; *) exit 9;; esac')
    edited = asyncio.run(edit([CodeBlock("echo a\n", "sh")], environment))
    assert edited == [CodeBlock("echo b\n", "sh")]
    environment = make_editor(tmp_path, 'printf "\\n\\`\\`\\`sh\\nls\\n\\`\\`\\`\\n" >> "$2"')
    blocks = [CodeBlock("print('```')\n", "python"), CodeBlock("echo a\n", "sh")]
    assert asyncio.run(edit(blocks, environment)) == [*blocks, CodeBlock("ls\n", "sh")]
    assert find_editor({"VISUAL": "code --wait", "EDITOR": "vi"}) == ["code", "--wait"]
    assert find_editor({"EDITOR": "vi"}) == ["vi"]


def test_an_edit_that_fails_says_why() -> None:
    messages = {
        "": "there is no editor: set EDITOR",
        "a 'b": r"\$EDITOR is not a command",
        "/nowhere/editor": "/nowhere/editor cannot be started: No such file",
        "false": "false ended with exit code 1",
        "truncate -s 0": "there is no code left",
    }
    for editor, message in messages.items():
        environment = {"EDITOR": editor} if editor else {"PATH": "/nowhere"}
        with pytest.raises(EditorError, match=message):
            asyncio.run(edit([CodeBlock("x\n", "python")], environment))
