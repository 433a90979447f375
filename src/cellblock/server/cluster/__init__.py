"""Sessions on the nodes of a Ray cluster, which places them."""
