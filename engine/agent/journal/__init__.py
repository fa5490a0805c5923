"""A run's journal on the head, and the files of a run's folder that outlive a process.

Writing, reading, rotating, locking and removing. What an event means is judged elsewhere.
"""
