"""What the kernel offers to sandboxes, one file per facility; `setup` builds a sandbox."""
