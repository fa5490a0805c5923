"""Ready cluster and run files for people to start from."""
