"""The part of gpuctl that runs on the nodes: only the standard library, Python 3.9 and later."""
