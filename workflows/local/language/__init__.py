"""What is written inside a manifest's texts: tags, expressions, conditions, quantities, and values as Go writes them."""
