"""Tests of what output means."""
