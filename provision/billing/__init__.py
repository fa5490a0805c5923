"""Prices, the costs of a cluster per hour and until today, and those of removed clusters.

Nothing here creates or ends anything. Budgets of a cluster file are checked by
`provision.preflight`.
"""
