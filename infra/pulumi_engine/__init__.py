"""Pulumi's engine: where it comes from, how it is driven, and what it reports."""
