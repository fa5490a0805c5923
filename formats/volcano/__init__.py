"""Volcano: its Job."""
