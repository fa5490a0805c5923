"""Loading a file: its kind, the template that it extends, and all diagnostics."""
