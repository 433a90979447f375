"""Tests of `cellblock chat`."""
