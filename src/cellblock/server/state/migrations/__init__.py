"""Revisions of the database, for Alembic. A released one never changes."""

# The newest revision. `open_database` brings a database here.
NEWEST = "0005"
