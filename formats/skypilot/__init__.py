"""SkyPilot: its task."""
