"""The checks by topic. Importing this package adds all of them to the list."""

from . import concurrency, endings, lifecycle, output, requests, sessions, trees

__all__ = ["concurrency", "endings", "lifecycle", "output", "requests", "sessions", "trees"]
