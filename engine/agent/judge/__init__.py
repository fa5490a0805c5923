"""Readers of a run's output and of kernel messages: tables, transport, gates, causes of failures.

They read text, without processes or files. What follows for the run is decided in `head`.
"""
