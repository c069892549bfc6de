"""Training of small networks on a processor as machine code, without a call of torch's per operation."""
