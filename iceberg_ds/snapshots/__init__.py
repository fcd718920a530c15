"""What a table's metadata holds about its snapshots: refs, transaction markers, summaries, manifests."""
