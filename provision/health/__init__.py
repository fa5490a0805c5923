"""The health of a cluster's nodes: facts from each node, rules that judge them, findings."""
