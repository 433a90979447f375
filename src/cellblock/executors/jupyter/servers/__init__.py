"""Jupyter servers that cellblock starts and stops."""
