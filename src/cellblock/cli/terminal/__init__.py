"""Standard input and output, Ctrl-C, and events as text."""
