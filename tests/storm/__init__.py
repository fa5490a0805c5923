"""Runs that are hit at random by failures: `python -m tests.storm --seed N --failures 10`."""
