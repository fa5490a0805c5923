"""Questions to AWS: clients, the account, and what exists."""
