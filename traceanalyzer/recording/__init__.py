"""The instrumented training loop; the only place that imports torch."""
