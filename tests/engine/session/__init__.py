"""Tests of what a client does with a run."""
