"""Notifications of a run: which events they report, and how they are delivered.

A failed notification never fails the run.
"""
