"""Manifests for Argo Workflows, built with Hera, and the command that submits them to a cluster or runs them on this machine."""
