"""ChatCompletionCache: ask a model only once for the same answer."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from pydantic import ValidationError

from ..components import Component, SavedComponent, load_component
from ..errors import ComponentError
from .cache_stores import CacheStore, DiskCacheStore, InMemoryStore
from .client import ChatCompletionClient, with_parameters_of
from .disk_cache import DiskCache
from .forwarding import ForwardingClient
from .messages import CreateResult
from .model_request import ModelRequest
from .recorded import RecordedAnswer, request_values


class ChatCompletionCache(ForwardingClient):
    """Ask `client`, and keep its answers. The same request again gets the kept answer.

    store   a folder to keep answers in, or an object with `get` and `set`. None means memory,
            until the cache is gone

    Requests are the same if messages, tools, `tool_choice`, `json_output`, `extra_create_args` and
    the client's configuration are. What a store returns that is not an answer is ignored.

    Usage is that of `client`: kept answers do not count.
    """

    component_type: ClassVar[str] = "chat_completion_cache"

    def __init__(
        self,
        client: ChatCompletionClient,
        store: CacheStore | str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(client)
        self._folder = Path(store) if isinstance(store, str | os.PathLike) else None
        self._owned_store: DiskCacheStore[str] | None = None
        self._given_store = None if self._folder is not None else store
        self._store = _open_store(store)
        self._client_values = _configuration_of(client)

    @with_parameters_of(ChatCompletionClient.create)
    async def create(self, *arguments: Any, **options: Any) -> CreateResult:
        """Return the kept answer, with `cached` set; otherwise that of the client."""
        request = ModelRequest(*arguments, **options)
        request.raise_if_cancelled()
        key = self._key(request_values(request))
        if kept := self._kept(key):
            return kept.cached_result()
        result = await self.client.create(*arguments, **options)
        self._keep(key, RecordedAnswer(result=result))
        return result

    @with_parameters_of(ChatCompletionClient.create)
    async def create_stream(
        self, *arguments: Any, **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the kept answer in its pieces, then whole; otherwise that of the client."""
        request = ModelRequest(*arguments, **options)
        request.raise_if_cancelled()
        key = self._key(request_values(request))
        if kept := self._kept(key):
            for item in kept.cached_stream():
                yield item
            return
        pieces: list[str] = []
        stream = self.client.create_stream(*arguments, **options)
        async with contextlib.aclosing(stream):
            async for item in stream:
                if isinstance(item, str):
                    pieces.append(item)
                else:
                    self._keep(key, RecordedAnswer(result=item, pieces=pieces))
                yield item

    def _key(self, request: Mapping[str, Any]) -> str:
        text = json.dumps([self._client_values, request], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _kept(self, key: str) -> RecordedAnswer | None:
        text = self._store.get(key)
        if not isinstance(text, str):
            return None
        try:
            return RecordedAnswer.model_validate_json(text)
        except ValidationError:
            return None

    def _keep(self, key: str, answer: RecordedAnswer) -> None:
        self._store.set(key, answer.model_dump_json())

    async def close(self) -> None:
        """Close the client, and a store that was loaded with the cache."""
        await super().close()
        if self._owned_store is not None:
            self._owned_store.close()

    def _to_config(self) -> dict[str, object]:
        store: object = None if self._folder is None else str(self._folder)
        if self._given_store is not None:
            if not isinstance(self._given_store, Component):
                raise ComponentError(
                    "A ChatCompletionCache with a store of your own cannot be saved. "
                    "Pass a folder or a DiskCacheStore as store=."
                )
            store = self._given_store.dump_component().to_dict()
        return {"client": self.client.dump_component().to_dict(), "store": store}

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        store: Any = config.get("store")
        if isinstance(store, Mapping):
            store = load_component(cast(SavedComponent, store))
        if not (store is None or isinstance(store, str | InMemoryStore | DiskCacheStore)):
            raise ComponentError(f"A saved cache can have a folder or a store, not {store!r:.200}.")
        client = ChatCompletionClient.load_component(cast(SavedComponent, config["client"]))
        cache = cls(client, cast("str | CacheStore | None", store))
        cache._owned_store = store if isinstance(store, DiskCacheStore) else None
        return cache


def _open_store(store: CacheStore | str | os.PathLike[str] | None) -> CacheStore:
    if store is None:
        return InMemoryStore()
    return DiskCache(store) if isinstance(store, str | os.PathLike) else store


def _configuration_of(client: ChatCompletionClient) -> object:
    """Return what tells `client` from clients of other models."""
    try:
        return client.dump_component().to_dict()
    except ComponentError:
        return [type(client).__qualname__, dict(client.model_info)]
