"""The Argo Server of a cluster: its address from the environment, and requests that have an end."""
