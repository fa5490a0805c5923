"""The files that people write, the instance catalogue, and the values that every room shares."""
