"""The work folder from outside: files written, files found, copies."""
