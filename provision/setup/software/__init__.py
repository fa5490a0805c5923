"""The software of a node: which steps an image needs on a type, and the checks that it is there."""
