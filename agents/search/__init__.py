"""Search over many games at once: PUCT, a Gumbel root, cached evaluations, rollouts."""
