"""Experience, from its collection until it is learnt from."""
