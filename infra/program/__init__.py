"""The Pulumi program: the resources of one cluster."""
