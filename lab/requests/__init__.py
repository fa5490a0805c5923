"""The check of every request to the lab's API against AWS's published rules, and their record."""
