"""The Pulumi engine: its installation, its operations, and its reports."""
