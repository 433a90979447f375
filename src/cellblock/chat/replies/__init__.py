"""How an agent finds its reply, and the messages that it sends and receives."""
