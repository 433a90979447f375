"""Answers that are kept: in memory, in a folder, in a store of one's own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import diskcache
import pytest
from pydantic import BaseModel

from cellblock import CancellationToken, Component, ComponentError, load_component
from cellblock.chat import Cache
from cellblock.models import (
    CHAT_CACHE_VALUE_TYPE,
    CacheStore,
    ChatCompletionCache,
    CreateResult,
    DiskCacheStore,
    FunctionCall,
    Image,
    InMemoryStore,
    ReplayChatCompletionClient,
    RequestUsage,
    UserMessage,
)
from cellblock.tools import FunctionTool

PIXEL = Image.from_base64(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"
)
HELLO = [UserMessage(content=["hello", PIXEL], source="user")]
CALLS = CreateResult(
    finish_reason="function_calls",
    content=[FunctionCall(id="1", name="add", arguments="{}")],
    usage=RequestUsage(3, 4),
    cached=False,
    thought="hm",
)


class Answer(BaseModel):
    value: int


class OtherAnswer(BaseModel):
    value: str


class Store(dict[str, Any]):
    """A store as a user would write it."""

    def set(self, key: str, value: str) -> None:
        self[key] = value


def add(a: int) -> int:
    return a


def model(*answers: str | CreateResult) -> ReplayChatCompletionClient:
    client = ReplayChatCompletionClient(answers)
    client.set_cached_bool_value(False)
    return client


async def streamed(cache: ChatCompletionCache) -> list[str | CreateResult]:
    return [item async for item in cache.create_stream(HELLO)]


Make = Callable[[ReplayChatCompletionClient, Path], ChatCompletionCache]
STORES: dict[str, Make] = {
    "memory": lambda client, _: ChatCompletionCache(client),
    "folder": lambda client, folder: ChatCompletionCache(client, folder / "cache"),
    "diskcache": lambda client, folder: ChatCompletionCache(client, diskcache.Cache(str(folder))),
    "own": lambda client, _: ChatCompletionCache(client, Store()),
}


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@pytest.mark.parametrize("make", STORES.values(), ids=STORES)
def test_the_same_request_gets_the_same_answer(make: Make, tmp_path: Path) -> None:
    async def work() -> None:
        client = model(CALLS, "not asked")
        cache = make(client, tmp_path)
        first, second = await cache.create(HELLO), await cache.create(HELLO)
        assert not first.cached
        assert second == first.model_copy(update={"cached": True})
        assert len(client.create_calls) == 1
        assert cache.total_usage() == client.total_usage() == RequestUsage(0, 4)
        await cache.close()

    run(work())


@pytest.mark.parametrize("make", STORES.values(), ids=STORES)
def test_a_stream_is_kept_in_its_pieces(make: Make, tmp_path: Path) -> None:
    async def work() -> None:
        cache = make(model("one two three"), tmp_path)
        first, second = await streamed(cache), await streamed(cache)
        assert first[:-1] == second[:-1] == ["one ", "two ", "three"]
        result = await cache.create(HELLO)
        assert second[-1] == result
        assert (result.content, result.cached) == ("one two three", True)
        await cache.close()

    run(work())


def test_an_answer_that_was_not_streamed_is_one_piece() -> None:
    async def work() -> None:
        cache = ChatCompletionCache(model("one two"))
        await cache.create(HELLO)
        text, result = await streamed(cache)
        assert text == "one two"
        assert isinstance(result, CreateResult)

    run(work())


def test_whatever_changes_the_answer_makes_another_request() -> None:
    async def work() -> None:
        client = model(*"abcdefgh")
        cache = ChatCompletionCache(client)
        tool = FunctionTool(add, "Add.")
        variants: list[dict[str, Any]] = [
            {},
            {"tools": [tool]},
            {"tools": [tool], "tool_choice": tool},
            {"json_output": True},
            {"json_output": Answer},
            {"json_output": OtherAnswer},
            {"extra_create_args": {"response_format": Answer}},
            {"extra_create_args": {"response_format": OtherAnswer}},
        ]
        first = [(await cache.create(HELLO, **each)).content for each in variants]
        again = [(await cache.create(HELLO, **each)).content for each in variants]
        assert first == again == list("abcdefgh")

    run(work())


def test_autogens_stores_and_stores_derived_from_ours_keep_answers(tmp_path: Path) -> None:
    class Mine(CacheStore[CHAT_CACHE_VALUE_TYPE], Component[BaseModel]):  # pyright: ignore[reportInvalidTypeArguments] - as AutoGen's scripts have it
        def __init__(self) -> None:
            self.values: dict[str, str] = {}

        def get(self, key: str, default: str | None = None) -> str | None:
            return self.values.get(key, default)

        def set(self, key: str, value: str) -> None:
            self.values[key] = value

    async def work() -> None:
        with diskcache.Cache(tmp_path) as disk:
            for store in (
                Mine(),
                InMemoryStore[CHAT_CACHE_VALUE_TYPE](),
                DiskCacheStore[CHAT_CACHE_VALUE_TYPE](disk),
            ):
                assert store.get("other") is None
                for cached in (False, True):
                    answer = await ChatCompletionCache(model("one", "two"), store).create(HELLO)
                    assert (answer.content, answer.cached) == ("one", cached)

    run(work())


def test_clients_of_other_models_do_not_share_answers() -> None:
    async def work() -> None:
        store = Store()
        one, two = (ChatCompletionCache(model(text), store) for text in ("one", "two"))
        assert (await one.create(HELLO)).content == "one"
        assert (await two.create(HELLO)).content == "two"

    run(work())


@pytest.mark.parametrize("wrong", ["", "{", '{"result": 1}', 3, b"x", [CALLS]])
def test_what_is_not_an_answer_is_ignored(wrong: object) -> None:
    async def work() -> None:
        store = Store()
        cache = ChatCompletionCache(model("one", "two"), store)
        await cache.create(HELLO)
        (key,) = store
        store[key] = wrong
        assert (await cache.create(HELLO)).content == "two"

    run(work())


def test_a_folder_keeps_answers_for_the_next_process(tmp_path: Path) -> None:
    async def work() -> None:
        before = ChatCompletionCache(model("one"), tmp_path)
        await before.create(HELLO)
        await before.close()
        after = ChatCompletionCache(model("one"), tmp_path)
        assert (await after.create(HELLO)).cached
        assert after.total_usage() == RequestUsage(0, 0)
        await after.close()

    run(work())


def test_a_stream_that_is_closed_early_is_not_kept() -> None:
    async def work() -> None:
        cache = ChatCompletionCache(model("one two", "three"))
        stream = cache.create_stream(HELLO)
        await anext(stream)
        await stream.aclose()
        assert (await cache.create(HELLO)).content == "three"

    run(work())


def test_a_cancelled_token_gets_no_kept_answer_either() -> None:
    async def work() -> None:
        cache, token = ChatCompletionCache(model("one")), CancellationToken()
        await cache.create(HELLO)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cache.create(HELLO, cancellation_token=token)
        with pytest.raises(asyncio.CancelledError):
            await anext(cache.create_stream(HELLO, cancellation_token=token))

    run(work())


def test_a_folder_of_both_versions_is_one_cache_and_holds_no_pickles(tmp_path: Path) -> None:
    async def work() -> None:
        cache = ChatCompletionCache(model("one"), tmp_path / "5")
        await cache.create(HELLO)
        await cache.close()

    run(work())
    with contextlib.closing(sqlite3.connect(tmp_path / "5" / "answers.sqlite")) as database:
        ((key, text),) = database.execute("SELECT key, value FROM answers").fetchall()
    assert "one" in json.loads(json.loads(text))["result"]["content"]
    assert Cache.disk(5, str(tmp_path)).get(key) == json.loads(text)


def test_an_error_of_the_model_is_not_kept() -> None:
    async def work() -> None:
        client = model()
        cache = ChatCompletionCache(client)
        with pytest.raises(ValueError, match="No more mock responses"):
            await cache.create(HELLO)
        client.chat_completions.append("one")
        assert (await cache.create(HELLO)).content == "one"

    run(work())


def test_a_cache_in_a_folder_is_saved_and_loaded(tmp_path: Path) -> None:
    saved = ChatCompletionCache(model("one"), tmp_path).dump_component()
    loaded = load_component(saved.to_json())
    assert isinstance(loaded, ChatCompletionCache)
    assert loaded.dump_component() == saved
    asyncio.run(loaded.close())


def test_a_cache_with_a_store_object_is_not_saved() -> None:
    with pytest.raises(ComponentError, match="Pass a folder"):
        ChatCompletionCache(model("one"), Store()).dump_component()


async def test_stores_are_saved_and_loaded_and_unpickle_nothing(tmp_path: Path) -> None:
    with diskcache.Cache(tmp_path) as disk:
        store = DiskCacheStore[Any](disk)
        values: dict[str, Any] = {"text": "one", "number": 42, "long": "x" * 100_000}
        for key, value in values.items():
            store.set(key, value)
        store.set("pickled", ["a list"])
        cache = ChatCompletionCache(model("one"), DiskCacheStore(disk))
        await cache.create(HELLO)
        saved, saved_cache = store.dump_component(), cache.dump_component()
    loaded = DiskCacheStore[Any].load_component(saved)
    assert {key: loaded.get(key) for key in values} == values
    assert loaded.get("pickled") is None  # it could be any code
    theirs = {
        "provider": "autogen_ext.cache_store.diskcache.DiskCacheStore",
        "component_type": "cache_store",
        "config": {"directory": str(tmp_path)},
    }
    again = load_component(theirs)
    assert isinstance(again, DiskCacheStore)
    again_cache = ChatCompletionCache.load_component(saved_cache)
    assert (await again_cache.create(HELLO)).cached
    await again_cache.close()
    for each in (loaded, cast(DiskCacheStore[Any], again)):
        each.close()
    memory = ChatCompletionCache(model("one"), InMemoryStore()).dump_component()
    assert load_component(memory).dump_component() == memory


def test_the_old_name_of_model_info_warns() -> None:
    client = ChatCompletionCache(model("one"))
    with pytest.warns(DeprecationWarning, match="use model_info instead"):
        assert client.capabilities == client.model_info
