"""The sessions of a server: made on first use, owned by one key, bounded in time and number."""
