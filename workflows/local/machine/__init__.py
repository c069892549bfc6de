"""What a pod becomes on this machine: a process under a supervisor, folders for its mounts, cores and GPUs by request."""
