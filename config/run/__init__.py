"""The run file: its models, its rules, and its environment."""
