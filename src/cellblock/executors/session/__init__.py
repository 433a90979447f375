"""Executors that run all blocks in one live interpreter."""
