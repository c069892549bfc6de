"""The Argo Server of a cluster: its address from the environment, and requests with a time limit."""
