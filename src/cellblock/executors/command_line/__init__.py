"""Executors that run each block in a fresh process."""
