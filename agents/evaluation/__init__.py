"""A trained policy at work: fresh episodes, films, and as a file for other programs."""
