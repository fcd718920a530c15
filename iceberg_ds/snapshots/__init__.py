"""What stands in a table's metadata about its snapshots: refs, transaction markers, summaries, manifests."""
