"""The part that lives on the nodes: the standard library alone, Python 3.9 and later."""
