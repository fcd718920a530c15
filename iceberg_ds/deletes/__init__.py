"""Finds rows by key from the key columns alone, and hides them by position deletes or rewrites their data files."""
