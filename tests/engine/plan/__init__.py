"""Tests of the launch plan."""
