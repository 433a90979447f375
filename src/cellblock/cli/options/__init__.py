"""The options that the commands share, and the executor that they ask for."""
