"""What gpuctl plans for every GPU type and every mode, as reviewed, and that AWS's API accepts it.

`golden/types/` has a plan for each GPU type of the catalogue at 2 nodes, `golden/modes/` one for
each cluster file of `modes/`: what `gpuctl plan` prints, and below it what Pulumi's engine will ask
AWS for. After a change that is meant to change plans:

    python -m tests.golden tests/plans [-k NAME]

writes them again, all or those named, to be read as a diff. A new mode is a new file in `modes/`;
what it needs to find in the account is in `tests.plans.account`.
"""
