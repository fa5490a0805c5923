"""The IAM permissions of each command: what they are, as a policy, and whether AWS grants them."""
