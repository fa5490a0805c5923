"""The record of each cluster on this machine, and the lock on it."""
