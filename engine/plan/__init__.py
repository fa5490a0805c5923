"""What a run executes, computed without I/O: the launch plan, by type, network and rules.

Nothing here reaches a node. The plan's classes are in `engine.contract`.
"""
