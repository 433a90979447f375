"""The interface of a backend: where blocks run."""

from __future__ import annotations

from abc import ABC, abstractmethod

from .connection import Connection


class Backend(ABC):
    """Where a runtime server runs."""

    @abstractmethod
    async def open(self) -> Connection:
        """Start a runtime server and return the connection to it.

        Raise `BackendError` if the server cannot start; the message says what to do about it.
        Raise `PackageError` if a module of `preload` cannot be imported.
        """
