"""A stranger's package: nothing in it is known to the project, which finds it by import path."""
