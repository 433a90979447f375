"""The checks, by subject. Importing this enters all of them in the list."""

from . import endings, lifecycle, many, output, requests, sessions, trees

__all__ = ["endings", "lifecycle", "many", "output", "requests", "sessions", "trees"]
