"""Tests of the browser package."""
