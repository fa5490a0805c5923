"""The removal of all resources with a cluster's tag, and the search for those that nobody uses.

It acts without Pulumi, so also where its state is lost. The order of a whole removal is in
`provision.down`.
"""
