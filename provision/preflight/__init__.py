"""The checks before anything is created."""
