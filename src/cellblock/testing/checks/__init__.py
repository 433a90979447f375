"""The checks, by subject. Importing this enters all of them in the list."""

from . import concurrency, endings, lifecycle, output, requests, sessions, trees

__all__ = ["concurrency", "endings", "lifecycle", "output", "requests", "sessions", "trees"]
