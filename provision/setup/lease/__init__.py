"""What a machine does about its cluster's lease: its timer, its extension, its idle time."""
