"""How an experiment is doing, for a person: live on a terminal or in lines, and at its end what failed and why."""
