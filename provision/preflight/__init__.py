"""Every check before anything is created."""
