"""What tasks do: from Arrow batches to data files and delete files, with their metrics."""
