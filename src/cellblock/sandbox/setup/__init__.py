"""Build the sandbox: namespaces, mounts, ownership, launcher."""
