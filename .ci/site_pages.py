"""What the site needs beyond `docs/`: pages and charts that stand elsewhere in the repository, and links between them.

In the repository a link leads to a file, so that it works wherever the files are shown. On the site the files of
`docs/` are at the top, and those of `ELSEWHERE` have their places below it. A link to any other file of the repository
becomes its text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).parent.parent
ELSEWHERE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "benchmarks/results/*.md",
    "benchmarks/results/*.png",
    "examples/*/README.md",
    "tests/chaos/README.md",
    "tests/chaos/results/*.md",
    "tests/chaos/results/*.png",
)
# A page with this name would take the place of the one that leads its section.
RENAMED = {"benchmarks/README.md": "benchmarks/measuring.md"}
# Each recipe is a page of its own name.
_RECIPE = re.compile(r"examples/(\w+)/README\.md")
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^][]|\[[^]]*\])*)\]\((?P<to>[^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and charts that stand elsewhere."""
    for pattern in ELSEWHERE:
        for path in sorted(REPOSITORY.glob(pattern)):
            name = path.relative_to(REPOSITORY).as_posix()
            files.append(File.generated(config, _renamed(name), abs_src_path=str(path)))
    return files


def _renamed(name: str) -> str:
    """Return the place on the site of a file that stands elsewhere."""
    return RENAMED.get(name, _RECIPE.sub(r"recipes/\1.md", name))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links between files of the repository lead to pages of the site."""
    del config
    there = Path(page.file.abs_src_path or "").relative_to(REPOSITORY).as_posix()

    def link(match: re.Match[str]) -> str:
        target, mark, anchor = match["to"].partition("#")
        if "://" in match["to"] or not target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(there), target))
        uri = _renamed(path).removeprefix("docs/")
        if files.get_file_from_path(uri) is None and not path.startswith("docs/"):
            return match["text"]
        to = posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")
        return f"{match['image']}[{match['text']}]({to}{mark}{anchor})"

    return _LINK.sub(link, markdown)
