"""Pure: the snapshots and branches of a table, and what stands in them about writes."""
