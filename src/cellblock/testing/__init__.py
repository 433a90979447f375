"""Shipped for tests: the checks that every executor must pass."""
