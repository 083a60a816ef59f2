"""Tools run by hand."""
