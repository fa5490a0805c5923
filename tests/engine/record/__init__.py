"""Tests of what this machine keeps of runs."""
