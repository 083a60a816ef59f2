"""Tools that make test data and reports; not part of the package."""
