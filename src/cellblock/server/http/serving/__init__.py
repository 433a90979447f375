"""The server's process: its socket, TLS, signals and orderly end."""
