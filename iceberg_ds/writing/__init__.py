"""What tasks do: from Arrow batches to data files with their metrics."""
