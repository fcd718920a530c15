"""Writes into several tables: rows that go to the table that they name, and rows that no task has a plan for."""
