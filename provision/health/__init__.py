"""The health of a cluster's nodes: facts from each node, rules that judge them, findings.

It reaches nodes by connections that others open, and asks AWS nothing. `provision.setup` decides
what a finding means for a new node.
"""
