"""Several agents with a turn order and a stop condition."""
