"""A cluster's nodes: launched whole or not at all, replaced one by one, ended.

Pulumi creates each of them (`infra`). What makes them ready for a job is in `provision.setup`.
"""
