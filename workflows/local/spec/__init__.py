"""What a manifest says: its fields, whether they are right, and what `depends` and loops mean."""
