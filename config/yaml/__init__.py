"""YAML files in which every value keeps its line, and in which one document overrides another."""
