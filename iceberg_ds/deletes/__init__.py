"""Rows that have certain keys, found by the key columns alone: hidden by position, or their files written again."""
