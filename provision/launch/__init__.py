"""Launch the whole cluster, or nothing."""
