"""A worker: the job's processes on one node, its container, environment, output and evidence.

It does what orders say, and reports. It decides nothing about the run.
"""
