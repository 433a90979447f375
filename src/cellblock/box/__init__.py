"""The box: a live session with commands, processes and files, which lives as long as a task."""
