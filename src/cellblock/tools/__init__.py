"""Tools that a model can call: functions, and code execution."""
