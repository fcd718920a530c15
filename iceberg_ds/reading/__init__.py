"""Reads tables: which files a snapshot has, and their rows as a DataFrame."""
