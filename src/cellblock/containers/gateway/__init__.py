"""The image and container of a Jupyter kernel gateway."""
