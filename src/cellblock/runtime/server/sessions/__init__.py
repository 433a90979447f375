"""Live sessions as the server sees them."""
