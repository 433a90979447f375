"""Executors: code blocks in, events and one result out."""
