"""How a pod runs on this machine: as a process under a supervisor, with folders for its mounts.
Processors and GPUs are allocated by its requests.
"""
