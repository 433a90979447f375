"""The program next to the code: a server and the cells it forks. Standard library only."""
