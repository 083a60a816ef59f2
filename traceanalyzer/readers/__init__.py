"""One reader per source; the registry opens any input."""
