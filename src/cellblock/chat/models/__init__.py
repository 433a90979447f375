"""Models by llm_config: the wrapper, its cache, configurations and usage."""
