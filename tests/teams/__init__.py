"""Tests of teams, conditions and the console."""
