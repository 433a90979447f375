"""Executors whose blocks run in somebody else's service."""
