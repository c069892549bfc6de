"""Learning: networks, PPO, environments, evaluation and film. No paths, no argparse, no Argo."""
