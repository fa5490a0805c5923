"""Tests of conclusions from what was kept."""
