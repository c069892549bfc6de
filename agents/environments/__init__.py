"""The games as training, evaluation and film make them; knows no torch."""
