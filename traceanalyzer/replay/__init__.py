"""What a step would cost with a cause removed."""
