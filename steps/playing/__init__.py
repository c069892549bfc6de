"""A person's game against a player, in the terminal or on a page of this machine."""
