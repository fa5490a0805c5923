"""What exists on AWS (the Pulumi program) and how it is applied (engine, backend, events)."""
