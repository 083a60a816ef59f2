"""Damaged, hostile and private input."""
