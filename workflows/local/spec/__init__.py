"""Reads a manifest: its fields, whether they are valid, and the meaning of `depends` and loops."""
