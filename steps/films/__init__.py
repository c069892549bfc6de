"""Films: how pictures become a file that every browser plays."""
