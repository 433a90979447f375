"""Executors whose blocks run in a service on another machine."""
