"""The lab's IAM: which requests a policy allows, as AWS decides it for an identity's policies."""
