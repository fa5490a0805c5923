"""What the fast network of a run needs: its environment, and what must be proven of it."""
