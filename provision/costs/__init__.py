"""Prices, and what a cluster costs."""
