"""The transcript of a conversation, and its files: Markdown and notebooks."""
