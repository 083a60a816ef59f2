"""A recording as columns of integers: what happened, without any opinion about it."""
