"""Jupyter servers that we start and stop."""
