"""The history, journals, results, tables and samples of runs that this machine keeps.

It reads and stores events. Conclusions from several runs are in `engine.analysis`.
"""
