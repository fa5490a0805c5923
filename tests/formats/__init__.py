"""Tests of the files of other tools."""
