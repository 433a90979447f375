"""Transcripts of AutoGen 0.7.5 and of Cellblock, side by side."""
