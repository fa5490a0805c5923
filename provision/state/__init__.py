"""The state of a cluster outside Pulumi: its record, inventory, host keys, owner and lock.

It is in a folder of this machine, or in a team's bucket. What exists in AWS is asked in
`provision.aws`; what clusters cost is in `provision.billing`.
"""
