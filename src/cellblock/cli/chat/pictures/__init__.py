"""Pictures that code made: find them, and show them in the terminal."""
