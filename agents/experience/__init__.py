"""What is experienced, until it is learnt from."""
