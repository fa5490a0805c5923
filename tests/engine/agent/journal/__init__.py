"""Tests of the journal and its files."""
