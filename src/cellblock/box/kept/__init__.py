"""Boxes that outlive the process that made them: their own process, and what attaches to it."""
