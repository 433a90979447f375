"""How the tests run: which are chosen, which process runs them, and what fails them."""
