"""Measurements side by side with plain processes: `python -m benchmarks.latency`."""
