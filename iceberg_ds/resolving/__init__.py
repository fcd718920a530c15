"""Finds the rows that have certain keys in data files by the key columns alone, and marks or rewrites them."""
