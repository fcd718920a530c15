"""Manifests: the Avro files that list data files, written by tasks and by the commit."""
