"""Write the verdicts of other writers' suites into the docs."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.peer.cases import PAGE, find_cases, verdict_page

if __name__ == "__main__":
    PAGE.write_text(verdict_page(find_cases()))
