"""What runs between fork and user code: zygote, first process, confinement, script."""
