"""How an experiment is doing, for a person: live on a terminal or in lines, and how it ended."""
