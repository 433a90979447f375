"""How two agents chat: turns, endings, what is stored, cleared and returned, what may fail."""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from typing import Any

import pytest

from cellblock.chat import Agent, Cache, ChatResult, ConversableAgent
from tests.chat.console import console
from tests.chat.scripted import contents, scripted

QUIET: dict[str, Any] = {"silent": True}


def chat(a: ConversableAgent, b: ConversableAgent, way: str, **options: Any) -> ChatResult:
    """Chat in a synchronous or an asynchronous way."""
    if way == "sync":
        return a.initiate_chat(b, **QUIET, **options)
    return asyncio.run(a.a_initiate_chat(b, **QUIET, **options))


ways = pytest.mark.parametrize("way", ["sync", "async"])


def test_turns_and_recipients_of_another_type_are_refused() -> None:
    a, b = scripted("a"), scripted("b", "b1")
    with pytest.raises(TypeError, match=r"max_turns is an integer or None, not 1\.5"):
        a.initiate_chat(b, message="hi", max_turns=1.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="The recipient is 5"):
        a.initiate_chat(5, message="hi")  # pyright: ignore[reportArgumentType]
    assert not a.chat_messages[b]


@ways
def test_clear_history_clears_both_sides_of_this_conversation_alone(way: str) -> None:
    a, b, c = scripted("a"), scripted("b", *"1234"), scripted("c", *"1234")
    for other in (b, c):
        chat(a, other, way, message="first", max_turns=1)
    chat(a, b, way, message="second", max_turns=1)
    assert contents(a.chat_messages[b]) == contents(b.chat_messages[a]) == ["second", "2"]
    assert contents(a.chat_messages[c]) == ["first", "1"]


async def later(sender: Agent, recipient: Agent, context: dict[str, Any]) -> str:
    await asyncio.sleep(0)
    return "awaited"


def test_an_asynchronous_chat_awaits_functions_for_message_and_summary() -> None:
    result = chat(
        scripted("a"), scripted("b"), "async", message=later, summary_method=later, max_turns=1
    )
    assert contents(result.chat_history) == ["awaited"]
    assert result.summary == "awaited"


@pytest.mark.parametrize("option", ["message", "summary_method"])
def test_a_coroutine_function_needs_an_asynchronous_chat(option: str) -> None:
    options: dict[str, Any] = {"message": "x", "max_turns": 1, **QUIET, option: later}
    with pytest.raises(TypeError, match=r"a_initiate_chat\(\)"):
        scripted("a").initiate_chat(scripted("b"), **options)


@ways
def test_a_chat_without_a_message_asks_for_it(way: str) -> None:
    human, b = scripted("human", human_input_mode="ALWAYS"), scripted("b", "b1")
    with console("typed", "exit") as stream:
        result = chat(human, b, way, carryover="C")
    assert stream.prompts[0] == ">"
    assert contents(result.chat_history) == ["typed\nContext: \nC", "b1"]
    assert result.human_input == ["typed", "exit"]


@ways
def test_what_a_human_typed_is_cleared_with_the_history(way: str) -> None:
    human, b = scripted("human", human_input_mode="ALWAYS"), scripted("b", *"123")
    typed: list[Any] = []
    for clear_history in (True, False, True):
        with console("exit"):
            result = chat(human, b, way, message="hi", clear_history=clear_history)
        typed.append(result.human_input)
    assert typed == [["exit"], ["exit", "exit"], ["exit"]]


@ways
def test_automatic_replies_are_counted_from_the_start_of_the_chat(way: str) -> None:
    a = scripted("a", "a1", None, "a2", None)
    b = scripted("b", *"1234", max_consecutive_auto_reply=3)
    said = [contents(chat(a, b, way, message="hi").chat_history) for _ in range(2)]
    assert said == [["hi", "1", "a1", "2"], ["hi", "3", "a2", "4"]]


@ways
def test_the_messages_stay_when_input_ends_in_a_prompt(way: str) -> None:
    human, b = scripted("human", human_input_mode="ALWAYS"), scripted("b", "b1", "b2")
    with console("my words"), pytest.raises(EOFError):
        chat(human, b, way, message="hi")
    assert contents(human.chat_messages[b]) == ["hi", "b1", "my words", "b2"]


@ways
@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()])
def test_the_messages_stay_when_a_reply_fails(way: str, error: BaseException) -> None:
    a, b = scripted("a", "a1"), scripted("b", "b1", error)
    with pytest.raises(type(error)):
        chat(a, b, way, message="hi")
    assert contents(a.chat_messages[b]) == ["hi", "b1", "a1"]


@ways
def test_the_cache_of_a_chat_is_used_for_the_chat_alone(way: str, tmp_path: Path) -> None:
    a, b = scripted("a"), scripted("b", "1", RuntimeError("broken"))
    seen: list[Any] = []

    def summary(sender: Any, recipient: Any, arguments: dict[str, Any]) -> str:
        seen.extend([sender.client_cache, recipient.client_cache, arguments["cache"]])
        return ""

    cache = Cache.disk(cache_path_root=str(tmp_path))
    options: dict[str, Any] = {"message": "hi", "max_turns": 1, "cache": cache}
    chat(a, b, way, summary_method=summary, **options)
    assert seen == [cache] * 3
    with pytest.raises(RuntimeError):
        chat(a, b, way, **options)
    assert a.client_cache is None
    assert b.client_cache is None


@ways
def test_a_subclass_changes_the_first_message(way: str) -> None:
    class Polite(ConversableAgent):
        def generate_init_message(self, message: Any, **kwargs: Any) -> Any:
            return f"Please {super().generate_init_message(message, **kwargs)}"

        async def a_generate_init_message(self, message: Any, **kwargs: Any) -> Any:
            return self.generate_init_message(message, **kwargs)

    polite = Polite("polite", human_input_mode="NEVER")
    result = chat(polite, scripted("b"), way, message="go", carryover="C", max_turns=1)
    assert contents(result.chat_history) == ["Please go\nContext: \nC"]


@pytest.mark.parametrize(("name", "right"), [("mesage", "message"), ("max_turn", "max_turns")])
def test_a_misspelled_option_of_a_chat_is_warned_of(name: str, right: str) -> None:
    options: dict[str, Any] = {"message": "hi", "max_turns": 1}
    options[name] = options.pop(right)
    with console("hi"), pytest.warns(UserWarning, match=f"no option '{name}'. Did you mean m"):
        scripted("a").initiate_chat(scripted("b"), **options)


@ways
def test_the_end_of_input_says_that_no_message_was_given(way: str) -> None:
    with console(), pytest.raises(EOFError) as caught:
        chat(scripted("a"), scripted("b"), way)
    assert any("No message= was given" in note for note in caught.value.__notes__)


@ways
def test_a_traceback_has_few_frames_of_the_library(way: str) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise LookupError("the cause")

    b = scripted("b")
    b.register_reply([Agent, None], fail)
    with pytest.raises(LookupError) as caught:
        chat(scripted("a"), b, way, message="hi")
    names = [Path(each.filename).name for each in traceback.extract_tb(caught.value.__traceback__)]
    assert names.count("steps.py") <= 3
