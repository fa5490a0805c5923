"""A Pulumi provider for the `aws` resource types that gpuctl's program uses, over boto3.

The real AWS plugin speaks to AWS's own endpoints and weighs hundreds of megabytes. This one makes
the same resources through the lab's API, and is honest in what a plan shows: it rejects what it
does not know, replaces what AWS cannot change, and reads what is really there.

`server` is the gRPC side, `resource` what a type is, `difference` compares, `network`, `security`
and `compute` hold the types, `table` lists them.
"""
