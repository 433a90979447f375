"""The walls, one file per kernel facility. `enter` runs in the launcher of a sandbox, the rest wherever it is asked."""
