"""Load a file: which kind it is, what it extends, and every message about a mistake."""
