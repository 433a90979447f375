"""Tests of executors for remote services."""
