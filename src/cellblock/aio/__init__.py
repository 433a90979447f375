"""Event loops and locks: the background loop, the inline loop, and calls and locks across loops."""
