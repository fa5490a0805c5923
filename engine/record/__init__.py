"""What this machine keeps of runs: history, journals, results, tables, samples.

It reads and stores events. Conclusions from several runs are in `engine.analysis`.
"""
