"""The languages whose blocks the command runs."""

LANGUAGES = ("python", "sh", "bash")
