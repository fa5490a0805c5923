"""The launch plan of a run, computed without I/O: by type, network and rules.

Nothing here reaches a node. The plan's classes are in `engine.contract`.
"""
