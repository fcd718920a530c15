"""Write the table of options into the README, between its two markers."""

from __future__ import annotations

from pathlib import Path

from iceberg_ds.option_table import options_table

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- options: made by `make readme` -->\n", "<!-- end of options -->"


def with_options(text: str) -> str:
    """Return the README's text with the current table between the markers."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{options_table()}\n\n{END}{after}"


if __name__ == "__main__":
    README.write_text(with_options(README.read_text()))
