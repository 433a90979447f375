"""Executors: blocks in, events and one result out."""
