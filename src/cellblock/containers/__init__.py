"""Containers of a Docker-compatible engine: reach it, describe, make, find and remove them."""
