"""Pure: what a table is made of: names, schemas and casts, partition specs, sort orders, where its files go."""
