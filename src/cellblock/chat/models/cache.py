"""Cache: keep the answers of models, and return them to the same request."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from ...models.disk_cache import DiskCache

_NOT_OFFERED = (
    "A cache in {place} is not offered. Use Cache.disk(...), "
    "or pass your own object with get and set (see AbstractCache) as cache=."
)


@runtime_checkable
class AbstractCache(Protocol):
    """What an agent can use as a cache. Values are JSON values."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value under `key`, or `default`."""
        ...

    def set(self, key: str, value: Any) -> None:
        """Keep `value` under `key`."""
        ...

    def close(self) -> None:
        """Close files and connections."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class Cache:
    """A cache that is chosen by a configuration. `Cache.disk` creates it.

    config   `cache_seed`: name of the folder, another name starts an empty cache; None means 42
             `cache_path_root`: where the folder is; None means ".cache"

    A context manager. Raise `ValueError` for other keys.
    """

    ALLOWED_CONFIG_KEYS: ClassVar[list[str]] = [
        "cache_seed",
        "redis_url",
        "cache_path_root",
        "cosmos_db_config",
    ]

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = dict(config)
        for key in self.config:
            if key not in self.ALLOWED_CONFIG_KEYS:
                raise ValueError(f"Invalid config key: {key}")
        self.cache: AbstractCache = _open_cache(self.config)

    @staticmethod
    def disk(cache_seed: str | int = 42, cache_path_root: str = ".cache") -> Cache:
        """Return a cache in the folder `cache_path_root`/`cache_seed`."""
        return Cache({"cache_seed": cache_seed, "cache_path_root": cache_path_root})

    @staticmethod
    def redis(cache_seed: str | int = 42, redis_url: str = "redis://localhost:6379/0") -> Cache:
        """Raise `ValueError`: a cache in Redis is not offered."""
        return Cache({"cache_seed": cache_seed, "redis_url": redis_url})

    @staticmethod
    def cosmos_db(
        connection_string: str | None = None,
        container_id: str | None = None,
        cache_seed: str | int = 42,
        client: Any = None,
    ) -> Cache:
        """Raise `ValueError`: a cache in Azure Cosmos DB is not offered."""
        settings = {"connection_string": connection_string, "container_id": container_id}
        return Cache({"cache_seed": cache_seed, "cosmos_db_config": settings})

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value under `key`, or `default`."""
        return self.cache.get(key, default)

    def set(self, key: str, value: Any) -> None:
        """Keep `value` under `key`. Raise `TypeError` if JSON cannot express it."""
        self.cache.set(key, value)

    def close(self) -> None:
        """Close the cache."""
        self.cache.close()

    def __enter__(self) -> Self:
        self.cache.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cache.__exit__(exc_type, exc_value, traceback)


class InMemoryCache:
    """Keep values in memory. Caches of different seeds share nothing."""

    def __init__(self, seed: str | int = "") -> None:
        self._seed = str(seed)
        self._values: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value under `key`, or `default`."""
        return self._values.get(key, default)

    def set(self, key: str, value: Any) -> None:
        """Keep `value` under `key`."""
        self._values[key] = value

    def close(self) -> None:
        """Do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _open_cache(config: Mapping[str, Any]) -> AbstractCache:
    if config.get("redis_url"):
        raise ValueError(_NOT_OFFERED.format(place="Redis"))
    if config.get("cosmos_db_config"):
        raise ValueError(_NOT_OFFERED.format(place="Azure Cosmos DB"))
    seed, root = config.get("cache_seed"), config.get("cache_path_root")
    folder = Path(".cache" if root is None else root)
    return DiskCache(folder / str(42 if seed is None else seed))
