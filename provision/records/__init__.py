"""What this machine remembers of each cluster, and the lock on it."""
