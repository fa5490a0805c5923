"""The supervisor: queue, attempts, start order, decisions, retries, saving, the end of a run.

It reads what workers report. How they are reached is in `link`.
"""
