"""The algorithms: one module each, in the order of its paper, with its losses inside."""
