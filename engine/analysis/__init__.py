"""Conclusions from what was kept: comparison, bisect, charts, timeline, metrics, a report.

No page is made here, and nothing is printed.
"""
