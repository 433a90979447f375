"""Where executors run blocks: a work folder, and the connection to a runtime server."""
