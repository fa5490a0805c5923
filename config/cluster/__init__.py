"""The cluster file: its models, its rules, and the resolved cluster."""
