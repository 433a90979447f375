"""Transcripts of AutoGen 0.2.40 and of `cellblock.chat`, side by side."""
