"""A cluster's life: preflight, plan, up, bootstrap, status, down. Knows nothing of runs."""
