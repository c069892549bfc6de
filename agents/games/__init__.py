"""Two-player games of perfect information for self-play: many positions at a time."""
