"""Other tools' files, read as run files, so that people run them unchanged.

Each folder with a `format.py` is a format; `kubernetes/` has what formats of manifests share.
What a format is, and how the core finds it: config/loading/formats.py.
"""
