"""The METADATA of a wheel, which is also the PKG-INFO of the source distribution, and the text of its page.

The README links to files of the repository. A package index shows it without them, so the page names the
files instead; they are in the source distribution.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)\s]*)\)")
NOTE = "Files named here, such as `docs/install.md`, are in the source distribution.\n"


def page(readme: str) -> str:
    """The README without links into the repository, and without its pictures."""
    title, newline, rest = readme.partition("\n")
    text = LINK.sub(lambda found: f"{found[2]}: {found[3]}" if found[1] else found[2], rest)
    return title + newline + "\n" + NOTE + text


def text_of(table: Dict[str, Any], readme: str, licenses: Iterable[str] = ("LICENSE",)) -> str:
    """The whole file. table: [project] of pyproject.toml. licenses: paths below the folder of licences."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {table['name']}",
        f"Version: {table['version']}",
        f"Summary: {table['description']}",
        f"License-Expression: {table['license']}",
        *(f"License-File: {path}" for path in licenses),
        f"Requires-Python: {table['requires-python']}",
        f"Keywords: {','.join(table['keywords'])}",
    ]
    lines += [f"Classifier: {one}" for one in table["classifiers"]]
    lines += [f"Project-URL: {label}, {address}" for label, address in table.get("urls", {}).items()]
    lines += [f"Requires-Dist: {one}" for one in table["dependencies"]]
    for extra, wanted in table["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {one}; extra == '{extra}'" for one in wanted]
    lines += ["Description-Content-Type: text/markdown", ""]
    return "\n".join(lines) + "\n" + page(readme)
