"""Upserts that find the old rows before they commit: by position deletes, or by rewriting the files that have them."""
