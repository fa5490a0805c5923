"""Machines that nobody rented: they boot in a lab's network, and no region knows them."""

from tests.lab.conftest import boot, key, lab_network, places

__all__ = ["boot", "key", "lab_network", "places"]
