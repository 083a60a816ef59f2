"""Tests of the renderers package."""
