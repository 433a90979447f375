"""API keys: their store, of which only hashes remain, and their quotas."""
