"""Doors: one package for each wire protocol, translated into calls on the session store."""
