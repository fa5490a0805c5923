"""The Pulumi program in pulumi_aws: what of a cluster exists in AWS.

It is a function from a resolved cluster to resources. How Pulumi carries it out is the business of
`infra.stack`.
"""
