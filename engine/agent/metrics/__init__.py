"""Samples of GPUs, network and memory: taken on a node, kept and served on the head.

It measures. Nothing here ends a run.
"""
