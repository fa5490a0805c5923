"""Commands that are killed at random moments: nothing may be left (`python -m tests.leaks`)."""
