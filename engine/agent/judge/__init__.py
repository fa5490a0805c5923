"""What a run's output and the kernel's words mean: tables, transport, gates, causes of failures.

Readers of text, without processes or files. What follows for the run is decided in `head`.
"""
