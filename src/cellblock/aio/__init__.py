"""Event loops and locks: the background loop on which executors live, and calls across loops."""
