"""Tests of the part that runs on the nodes."""
