"""Programs the tests need."""
