"""Answers of models in a cache."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cellblock.chat import Cache, OpenAIWrapper
from cellblock.chat.models.cache import InMemoryCache
from cellblock.chat.models.cached_answers import get_key
from cellblock.models import (
    ChatCompletionCache,
    CreateResult,
    ReplayChatCompletionClient,
    RequestUsage,
)
from cellblock.models.disk_cache import DiskCache
from tests.chat.model_service import HELLO, completion, entry, served
from tests.chat.own_client import OwnClient


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class CountingClient(OwnClient):
    """A client whose answers say how many there were."""

    count = 0

    def answer(self, params: dict[str, Any]) -> SimpleNamespace:
        type(self).count += 1
        return SimpleNamespace(content=str(self.count), parts=[{"x": (1, None)}])


class StubbornClient(CountingClient):
    """Answers with an object that JSON cannot express."""

    def create(self, params: dict[str, Any]) -> Any:
        return SimpleNamespace(**vars(super().create(params)), handle=object())


def counting(client: type[CountingClient] = CountingClient) -> OpenAIWrapper:
    client.count = 0
    wrapper = OpenAIWrapper(config_list=[{"model_client_cls": client.__name__}], cache_seed=7)
    wrapper.register_model_client(client)
    return wrapper


def answer(text: str) -> CreateResult:
    usage = RequestUsage(100, 10)
    return CreateResult(finish_reason="stop", content=text, usage=usage, cached=False)


def text_of(response: Any) -> Any:
    return OpenAIWrapper.extract_text_or_completion_object(response)[0]


def test_the_same_request_is_asked_once(folder: Path) -> None:
    with served(completion("one"), completion("two"), completion("three")) as service:
        wrapper = OpenAIWrapper(config_list=[entry(service)])
        assert text_of(wrapper.create(messages=HELLO)) == "one"
        assert text_of(wrapper.create(messages=HELLO)) == "one"
        assert (folder / ".cache" / "41").is_dir()
        assert text_of(wrapper.create(messages=HELLO, temperature=1)) == "two"
        assert text_of(wrapper.create(messages=HELLO, cache_seed=42)) == "three"
        again = OpenAIWrapper(config_list=[entry(service, api_key="sk-other", price=[1, 1])])
        response = again.create(messages=HELLO)
    assert (text_of(response), response.config_id, response.pass_filter) == ("one", 0, True)
    assert len(service.requests) == 3


def test_a_cached_answer_is_filtered_too() -> None:
    with served(completion("one"), completion("two")) as service:
        wrapper = OpenAIWrapper(config_list=[entry(service), entry(service, model="gpt-4")])

        def is_two(context: Any, response: Any) -> bool:
            return text_of(response) == "two"

        for _ in range(2):
            response = wrapper.create(messages=HELLO, filter_func=is_two)
            assert (text_of(response), response.config_id) == ("two", 1)
    assert len(service.requests) == 2


def test_keys_and_addresses_are_not_written(folder: Path) -> None:
    with served(completion()) as service:
        OpenAIWrapper(config_list=[entry(service)]).create(messages=HELLO)
    written = b"".join(path.read_bytes() for path in (folder / ".cache").rglob("*.*"))
    assert b"Hey" in written
    assert b"sk-secret" not in written
    assert service.url.encode() not in written


def test_a_request_is_identified_without_keys_and_addresses() -> None:
    asked = {"messages": HELLO, "model": "m"}
    key = '{"messages": [{"content": "Hi", "role": "user"}], "model": "m"}'
    assert get_key(asked) == key
    assert get_key({**asked, "api_key": "sk-1", "base_url": "http://x", "price": [1, 2]}) == key


def test_a_client_of_models_is_cached_only_where_that_is_asked_for(folder: Path) -> None:
    def wrapper(**settings: Any) -> OpenAIWrapper:
        client = ReplayChatCompletionClient(["one", "two"])
        return OpenAIWrapper(config_list=[{"model_client": client}], **settings)

    plain = wrapper()
    assert [text_of(plain.create(messages=HELLO)) for _ in range(2)] == ["one", "two"]
    assert list(folder.iterdir()) == []
    seeded = wrapper(cache_seed=41)
    assert [text_of(seeded.create(messages=HELLO)) for _ in range(2)] == ["one", "one"]


def test_the_answer_of_ones_own_class_is_cached() -> None:
    wrapper = counting()
    first, second = wrapper.create(messages=HELLO), wrapper.create(messages=HELLO)
    assert CountingClient.count == 1
    assert text_of(second) == "1"
    assert second.choices[0].message.parts == [{"x": [1, None]}]
    assert (first.cost, second.cost) == (0.5, 0.5)
    assert wrapper.total_usage_summary is not None
    assert wrapper.total_usage_summary["total_cost"] == 1
    assert wrapper.actual_usage_summary is not None
    assert wrapper.actual_usage_summary["total_cost"] == 0.5


def test_an_answer_that_json_cannot_express_is_not_cached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wrapper = counting(StubbornClient)
    assert [text_of(wrapper.create(messages=HELLO)) for _ in range(2)] == ["1", "2"]
    assert "An answer is not cached: object is neither a SimpleNamespace nor JSON." in caplog.text


@pytest.mark.parametrize("value", [None, "text", [], {}, {"chat_completion": {"id": 3}}])
def test_what_is_no_answer_in_a_cache_is_ignored(value: object) -> None:
    class OneValue(InMemoryCache):
        def get(self, key: str, default: Any = None) -> Any:
            return value

    with served(completion("new")) as service:
        wrapper = OpenAIWrapper(config_list=[entry(service)])
        assert text_of(wrapper.create(messages=HELLO, cache=OneValue())) == "new"


def test_a_cache_keeps_json_values(folder: Path) -> None:
    with Cache.disk(5) as cache:
        assert cache.get("a") is None
        assert cache.get("a", 3) == 3
        cache.set("a", [1, {"b": None}])
        cache.set("a", [2, {"b": None}])
        with pytest.raises(TypeError):
            cache.set("c", object())
    assert Cache.disk(5).get("a") == [2, {"b": None}]
    assert Cache.disk(6).get("a") is None
    with contextlib.closing(sqlite3.connect(folder / ".cache/5/answers.sqlite")) as database:
        ((text,),) = database.execute("SELECT value FROM answers").fetchall()
    assert json.loads(text) == [2, {"b": None}]


def test_a_damaged_value_counts_as_none(folder: Path) -> None:
    cache = DiskCache(folder)
    cache.set("a", 1)
    with contextlib.closing(sqlite3.connect(folder / "answers.sqlite")) as database, database:
        database.execute("UPDATE answers SET value = '{'")
    assert cache.get("a", 3) == 3


def test_answers_of_a_caching_client_cost_nothing() -> None:
    client = ChatCompletionCache(ReplayChatCompletionClient([answer("one")]))
    wrapper = OpenAIWrapper(config_list=[{"model": "gpt-4", "model_client": client}])
    first, second = wrapper.create(messages=HELLO), wrapper.create(messages=HELLO)
    assert first.cost == second.cost > 0
    assert wrapper.actual_usage_summary is not None
    assert wrapper.actual_usage_summary["total_cost"] == first.cost
    assert wrapper.total_usage_summary is not None
    assert wrapper.total_usage_summary["total_cost"] == 2 * first.cost


def test_threads_share_a_cache() -> None:
    cache = DiskCache("shared")
    threads = [threading.Thread(target=cache.set, args=(str(n), n)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [cache.get(str(n)) for n in range(8)] == list(range(8))


def test_a_folder_that_cannot_be_used_is_named(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(OSError, match="cache folder file/41 cannot be used.*cache_seed=None"):
        Cache.disk(41, "file").set("a", 1)
    (folder / "damaged").mkdir()
    (folder / "damaged" / "answers.sqlite").write_text("x" * 5000)
    with pytest.raises(OSError, match="cache folder damaged cannot be used"):
        DiskCache("damaged").get("a")


def test_other_places_are_refused_with_the_next_step() -> None:
    with pytest.raises(ValueError, match="A cache in Redis is not offered. Use Cache.disk"):
        Cache.redis()
    with pytest.raises(ValueError, match="A cache in Azure Cosmos DB is not offered"):
        Cache.cosmos_db("connection", "container")
    with pytest.raises(ValueError, match="Invalid config key: place"):
        Cache({"place": "x"})
