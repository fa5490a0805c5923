"""YAML as people write it: every value keeps its line; one document overrides another."""
