"""Two sets of runs compared: statistics and verdicts."""
