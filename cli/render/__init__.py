"""What the commands print: plans, runs, tables, reports, progress."""
