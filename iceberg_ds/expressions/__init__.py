"""Pure: predicates on rows: parsed, bound to a schema, evaluated over rows and over the metrics of files."""
