"""The web console: server-rendered pages to run code and to look after sessions, keys and usage."""
