"""Tests of the clients of OpenAI, Azure and servers that speak the same protocol."""
