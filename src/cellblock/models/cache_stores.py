"""Where a ChatCompletionCache keeps answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Protocol, Self, cast

from typing_extensions import TypeVar

from ..components import Component
from ..errors import ComponentError

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


class InMemoryStore(Component, Generic[T]):
    """A store that ends with the process. A saved one is empty."""

    component_type: ClassVar[str] = "cache_store"

    def __init__(self) -> None:
        self.store: dict[str, T] = {}

    def get(self, key: str, default: T | None = None) -> T | None:
        """Return the value under `key`, or `default`."""
        return self.store.get(key, default)

    def set(self, key: str, value: T) -> None:
        """Keep `value` under `key`."""
        self.store[key] = value

    def _to_config(self) -> dict[str, object]:
        return {}

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        return cls()


class DiskCacheStore(Component, Generic[T]):
    """A store in `cache_instance`, a `diskcache.Cache`, which stays open until `close`.

    One that is loaded from a configuration reads only texts, numbers and bytes of the folder that
    the configuration names: `diskcache` would execute what it unpickles.
    """

    component_type: ClassVar[str] = "cache_store"

    def __init__(self, cache_instance: Any) -> None:
        self.cache = cache_instance

    def get(self, key: str, default: T | None = None) -> T | None:
        """Return the value under `key`, or `default`."""
        return self.cache.get(key, default)

    def set(self, key: str, value: T) -> None:
        """Keep `value` under `key`."""
        self.cache.set(key, value)

    def close(self) -> None:
        """Close the `diskcache.Cache`."""
        self.cache.close()

    def _to_config(self) -> dict[str, object]:
        return {"directory": os.fspath(self.cache.directory)}

    @classmethod
    def _from_config(cls, config: Mapping[str, object]) -> Self:
        try:
            from diskcache import Cache
            from diskcache.core import MODE_PICKLE, Disk
        except ImportError as error:
            raise ComponentError(
                "A DiskCacheStore needs the package diskcache. "
                "Install it: pip install 'cellblock[cache]'"
            ) from error

        class PlainDisk(Disk):
            def fetch(self, mode: int, filename: Any, value: Any, read: bool) -> Any:
                disk = cast(Any, super())
                return None if mode == MODE_PICKLE else disk.fetch(mode, filename, value, read)

        return cls(Cache(str(config["directory"]), disk=PlainDisk))
