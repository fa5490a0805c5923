"""dstack: its tasks."""
