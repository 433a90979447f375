"""The server of cells: pools, scheduler, output, accounting. Runs outside the cells."""
