"""Serve sandboxed sessions over HTTP to existing clients of code interpreters."""
