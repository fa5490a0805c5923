"""A run from its plan to its results. This room does not know how a cluster is created."""
