"""Tests of chats."""
