"""Thin wrappers over Linux system calls: pidfd, credentials, process tree, files."""
