"""Exit statuses of the agent's commands."""

BUSY = 3
"""Of `start`: other runs have the nodes."""
NO_PLAN = 4
"""Of `supervise`: the head does not have the run's plan any more."""
REFUSED = 5
"""Of `move` and `drop`: the run does not wait."""
