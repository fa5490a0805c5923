"""The values that client and agent exchange: plan, orders and events as frozen dataclasses.

The standard library alone (Python 3.9), because the agent has nothing else. How a run is planned,
executed or shown is in the other rooms.
"""
