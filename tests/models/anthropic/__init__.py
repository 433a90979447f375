"""Tests of the client of Anthropic."""
