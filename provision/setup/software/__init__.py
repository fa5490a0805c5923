"""A node's software: the steps that an image needs on a type, and the checks of their results."""
