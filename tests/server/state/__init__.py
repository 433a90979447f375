"""Tests of the state of servers in their database: SQLite and PostgreSQL."""
