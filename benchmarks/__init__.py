"""Benchmarks against plain processes and other tools: `python -m benchmarks`."""
