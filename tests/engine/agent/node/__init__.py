"""Tests of a worker."""
