"""Gradients of losses, and Adam and RMSProp, which descend them."""
