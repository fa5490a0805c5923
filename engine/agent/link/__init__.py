"""How head, workers and clients reach each other: ssh, sockets, heartbeats, streams of events.

It carries messages and knows who is silent. What they say is handled by `head` and `node`.
"""
