"""Where a ChatCompletionCache keeps answers."""

from __future__ import annotations

from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

T = TypeVar("T", default=str)
T_contra = TypeVar("T_contra", contravariant=True, default=str)

CHAT_CACHE_VALUE_TYPE = str
"""What a `ChatCompletionCache` keeps in a store: an answer as JSON."""


class CacheStore(Protocol[T_contra]):
    """Where a cache keeps answers, such as a `diskcache.Cache`. Keys and values are text."""

    def get(self, key: str, /) -> Any:
        """Return the value under `key`, or None."""
        ...

    def set(self, key: str, value: T_contra, /) -> Any:
        """Keep `value` under `key`."""
        ...


class InMemoryStore(Generic[T]):
    """A store that ends with the process."""

    def __init__(self) -> None:
        self.store: dict[str, T] = {}

    def get(self, key: str, default: T | None = None) -> T | None:
        """Return the value under `key`, or `default`."""
        return self.store.get(key, default)

    def set(self, key: str, value: T) -> None:
        """Keep `value` under `key`."""
        self.store[key] = value


class DiskCacheStore(Generic[T]):
    """A store in `cache_instance`, a `diskcache.Cache`, which the caller closes."""

    def __init__(self, cache_instance: Any) -> None:
        self.cache = cache_instance

    def get(self, key: str, default: T | None = None) -> T | None:
        """Return the value under `key`, or `default`."""
        return self.cache.get(key, default)

    def set(self, key: str, value: T) -> None:
        """Keep `value` under `key`."""
        self.cache.set(key, value)
