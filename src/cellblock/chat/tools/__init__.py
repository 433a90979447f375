"""Functions that models call: schemas, registration, calls."""
