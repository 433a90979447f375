"""The conformance suite for executors, for the built-in ones and for yours."""
