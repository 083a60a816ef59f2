"""Benchmarks and studies; run by hand, never timed in tests."""
