"""The only door to catalogs: connected to, asked, sent commits; with all that is particular to a kind of them."""
