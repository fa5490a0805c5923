"""Questions to AWS: clients, the account, the resources that exist, objects in a bucket.

It creates no resource of a cluster, and knows no record. What an answer means for a plan is decided
in `provision.preflight` and `provision.capacity`.
"""
