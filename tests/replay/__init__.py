"""Tests of what removing a cause could win."""
