"""Tests of the measures package."""
