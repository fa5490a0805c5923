"""An AWS region on one machine: its API, its Pulumi provider, its machines that boot."""
