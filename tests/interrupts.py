"""Programs that tests interrupt."""

INTERRUPTIBLE = ("env", "--default-signal=INT")
"""In front of a command: Ctrl-C ends it although the tests themselves ignore Ctrl-C, as a shell has
its background jobs do, and nohup."""
