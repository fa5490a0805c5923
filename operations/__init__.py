"""What each command does, without printing: typed values in and out, progress by callbacks.

`__all__` of a module has the names of other packages that its callers need next to its own.
"""
