"""Tests of how head, workers and clients reach each other."""
