"""What a node is and how to reach it: inventory, folded names, ssh, fan-out."""
