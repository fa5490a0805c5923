"""Clusters of machines that people have: `up` and `down` of files with `hosts`.

gpuctl writes a few things on the machines, and removes exactly these again. Both are scripts that
the user's own ssh runs as root.
"""
