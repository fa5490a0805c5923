"""A client's side of a run: start, follow, attach, stop, fetch; and the agent that it sends.

What is decided on the head is in `engine.agent`. What is kept is in `engine.record`.
"""
