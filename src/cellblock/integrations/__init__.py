"""Adapters for other frameworks. Each needs its framework, and nothing here imports it."""
