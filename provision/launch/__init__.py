"""The launch of a whole cluster or of nothing."""
