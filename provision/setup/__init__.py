"""The way from launched instances to nodes that are ready for a job."""
