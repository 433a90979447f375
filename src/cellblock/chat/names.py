"""Names of agents and functions that chat models accept."""

from __future__ import annotations

import re

MAX_LENGTH = 64


def assert_valid_name(name: str) -> str:
    """Return `name`. Raise `ValueError` if a chat model would not accept it."""
    if not re.fullmatch(r"[a-zA-Z0-9_-]+", name):
        raise ValueError(f"Invalid name: {name}. Only letters, numbers, '_' and '-' are allowed.")
    if len(name) > MAX_LENGTH:
        raise ValueError(f"Invalid name: {name}. Name must be less than 64 characters.")
    return name


def normalize_name(name: str) -> str:
    """Return `name` with '_' for each character that is not allowed, cut to 64 characters.

    It is for names that a model wrote. A name that a person chose is checked instead.
    """
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:MAX_LENGTH]
