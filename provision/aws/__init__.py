"""Requests to AWS: clients, the account, and the resources that exist."""
