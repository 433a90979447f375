"""Start, reach and stop a runtime: on this host, in the sandbox, in a container."""
