"""Slurm: its batch script."""
