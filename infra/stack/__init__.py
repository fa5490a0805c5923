"""A cluster as a Pulumi stack: plan, up, drift and destroy through the Automation API.

What exists in AWS is the business of `infra.program`. Here are the stack, its workspace, the start
of Pulumi's engine, its events and errors, and its installation.
"""
