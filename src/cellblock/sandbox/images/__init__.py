"""Root file systems: images of containers, unpacked once for each user, without an engine."""
