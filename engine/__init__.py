"""A run's life: plan, launch, follow, results. Knows nothing of how a cluster came to be."""
