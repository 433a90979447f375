"""One request to a model: parameters and messages, connection, answer, price, cached answer."""
