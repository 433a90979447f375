"""What the examples print, and how their conversations are recorded."""
