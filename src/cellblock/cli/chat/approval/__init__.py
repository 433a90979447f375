"""Whether code may run: the modes, the question at the terminal, and the editor."""
