"""The live interpreter of a session, its checkpoints and its branches."""
