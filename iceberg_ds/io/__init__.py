"""The only door to files, in local folders and object stores: read, written, listed, deleted with proof."""
