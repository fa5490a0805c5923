"""The lab's network: a bridge in a namespace, addresses, host settings."""
