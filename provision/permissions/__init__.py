"""The IAM permissions of each command: what they are, as a policy, and whether AWS grants them.

The role of a cluster's nodes is checked in `provision.preflight`. What the lab allows is in `lab`.
"""
