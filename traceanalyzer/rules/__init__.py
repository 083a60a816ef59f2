"""Root causes, one per file; opinions only. The registry lists them."""
