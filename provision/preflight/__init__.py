"""The checks before anything is created. They return a resolved cluster, or all problems at once.

Nothing here changes AWS. Capacity is claimed afterwards, in `provision.capacity`.
"""
