"""Tests of the rules: one file per rule, and tests over all of them."""
