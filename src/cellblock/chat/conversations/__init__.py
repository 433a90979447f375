"""Conversations of two agents: alone, one after the other, nested; their results."""
