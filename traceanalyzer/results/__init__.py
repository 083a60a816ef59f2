"""The documents that leave the pipeline: everything a renderer, a comparison or a machine may read."""
