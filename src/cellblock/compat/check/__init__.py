"""Read scripts and notebooks for AutoGen, and say what of it is covered, differs or is missing."""
