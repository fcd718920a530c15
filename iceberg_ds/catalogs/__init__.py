"""The catalogs: connected to, asked, and sent commits. All that is particular to a kind of catalog is here."""
