"""The removal of all resources with a cluster's tag."""
