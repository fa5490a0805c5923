"""Capacity for all nodes of a cluster at once: offers, claims, reservations and capacity blocks.

A claim is capacity that is held for minutes. The launch of nodes into it, and of spot instances,
is in `provision.nodes`.
"""
