"""The way from launched instances to nodes that are ready for a job: user data, ssh, software.

Here is also what reaches all machines of a cluster at once. Instances are launched and ended in
`provision.nodes`.
"""
