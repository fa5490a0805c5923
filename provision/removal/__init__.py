"""Remove what carries a cluster's tag."""
