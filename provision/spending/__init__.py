"""What clusters have cost, kept after their removal."""
