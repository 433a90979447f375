"""What all doors share: requests, authentication, errors, logs, health, and the server process."""
