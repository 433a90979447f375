"""Executors that run blocks in Jupyter kernels."""
