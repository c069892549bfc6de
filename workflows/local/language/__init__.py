"""What is written inside a manifest's texts: tags, expressions, conditions, quantities.

And values as Go writes them.
"""
