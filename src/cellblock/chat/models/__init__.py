"""Models by llm_config: the wrapper, its requests, its cache, configurations and usage."""
