"""AutoGen's module names, mapped onto ours."""
