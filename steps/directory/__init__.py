"""The output directory: its layout, whole files, tables, checkpoints, ownership and status. Imports
no torch.
"""
