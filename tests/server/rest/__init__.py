"""Tests of our own REST interface, through `cellblock serve` and httpx."""
