"""API keys: their store, which keeps only hashes, and their quotas."""
