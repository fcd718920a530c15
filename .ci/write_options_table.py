"""Write the table of options into the README, and that of other writers' options into the docs, between two markers."""

from __future__ import annotations

from pathlib import Path

from iceberg_ds.options.other_writers import foreign_table
from iceberg_ds.options.sink_options import options_table

REPOSITORY = Path(__file__).parent.parent
TABLES = {REPOSITORY / "README.md": options_table, REPOSITORY / "docs" / "coming-from.md": foreign_table}
BEGIN, END = "<!-- options: made by `make readme` -->\n", "<!-- end of options -->"


def with_table(text: str, table: str) -> str:
    """Return a page's text with the current table between the markers."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table}\n\n{END}{after}"


if __name__ == "__main__":
    for page, table in TABLES.items():
        page.write_text(with_table(page.read_text(), table()))
