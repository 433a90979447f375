"""Our own REST interface: runs with live output, sessions, checkpoints and files."""
