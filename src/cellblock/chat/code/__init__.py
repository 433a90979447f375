"""The code in messages: which executor runs it, and the reply."""
