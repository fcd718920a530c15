"""Random change feeds, other writers, changes of the table and failures: every key has exactly the row it should."""

from __future__ import annotations

from hypothesis import settings
from support.exhaustive import examples
from support.keys.machine import KeyedTable

TestKeyedTable = KeyedTable.TestCase
TestKeyedTable.settings = settings(stateful_step_count=20, max_examples=examples(30))
