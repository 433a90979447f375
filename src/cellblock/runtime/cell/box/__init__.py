"""The box of a session: its commands and files, as the first process of the cell runs them."""
