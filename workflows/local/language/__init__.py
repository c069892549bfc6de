"""The languages inside a manifest's texts: tags, expressions, conditions, quantities. Also writes
values as Go does.
"""
