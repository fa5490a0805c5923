"""Nodes and connections to them: inventory, folded names, ssh, fan-out."""
