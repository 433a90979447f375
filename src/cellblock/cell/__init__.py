"""What runs inside a place. Standard library only, relative imports only: the source is shipped as it is."""
