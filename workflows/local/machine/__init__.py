"""What a pod becomes on this machine: a process under a supervisor, folders for its mounts.

Cores and GPUs are handed out by what it requests.
"""
