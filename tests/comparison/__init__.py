"""Tests of the comparison."""
