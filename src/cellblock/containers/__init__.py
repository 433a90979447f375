"""A Docker-compatible engine: client, images, packages, lifecycle."""
