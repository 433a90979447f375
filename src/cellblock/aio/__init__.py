"""The background loop, calls on it from other loops and threads, and shielded waiting."""
