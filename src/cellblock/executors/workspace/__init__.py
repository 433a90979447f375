"""The work folder as seen from outside: write its files, list changes, take snapshots."""
