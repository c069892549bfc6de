"""Shows how an experiment is doing, live on a terminal or in lines, and how it ended."""
