"""Tests of replay and bounds."""
