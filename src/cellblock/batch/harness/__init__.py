"""The program that runs function tests in a cell. It imports only the standard library.

Its source is sent into the cell. `main` forks: the child runs the program, the parent the tests.
"""
