"""A Pulumi provider for the `aws` resource types that gpuctl's program uses, over boto3.

The real AWS plugin uses AWS's endpoints and has hundreds of megabytes. This one creates the same
resources through the lab's API. Its plans are exact: it rejects unknown inputs, replaces resources
that AWS cannot change, and reads the actual state.

`server` is the gRPC side, `resource` the base class of a type, `difference` compares properties.
`table` lists the types, which are in the other modules.
"""
