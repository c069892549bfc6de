"""The Argo Server of a cluster: its address from the environment, and requests to it that have an end."""
