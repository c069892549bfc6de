"""Players of the games for self-play, and matches between them."""
