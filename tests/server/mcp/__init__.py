"""Tests of `cellblock mcp` with the official client."""
