"""ContextVariables: the values that the agents of one group chat share, under AG2's names."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from typing import Any, Self

PARAMETER = "context_variables"
"""A function with this parameter, of the type `ContextVariables`, gets those of the chat."""


class ContextVariables(UserDict[str, Any]):
    """Values by name. Functions read and set them, and the choice of the next agent may depend.

    It is a mapping. No model gets it as an argument to fill in.
    """

    def __init__(self, data: Mapping[str, Any] | None = None, **values: Any) -> None:
        super().__init__({**(data or {}), **values})

    def set(self, key: str, value: Any) -> None:
        """Set a value."""
        self[key] = value

    def remove(self, key: str) -> bool:
        """Remove a value. Return False if there is none."""
        return self.data.pop(key, self) is not self

    def contains(self, key: str) -> bool:
        """Return True if there is a value."""
        return key in self

    def to_dict(self) -> Mapping[str, Any]:
        """Return a copy as a dict."""
        return dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return a copy of `data`."""
        return cls(data)
