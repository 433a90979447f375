"""Conversations of two agents: single, one after the other, nested; their results."""
