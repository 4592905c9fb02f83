"""The input and output of rules: the text of a file, and findings about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import List

CPP_SUFFIXES = (".h", ".hpp", ".cc", ".cpp", ".c")


@dataclass(frozen=True)
class Finding:
    """One broken rule."""

    path: str
    line: int
    rule: str
    sentence: str
    is_error: bool = True

    def __str__(self) -> str:
        kind = "error" if self.is_error else "warning"
        return f"{self.path}:{self.line}: {kind}: {self.rule}: {self.sentence}"


class Source:
    """A text file of the repository; path is relative to its root, with forward slashes."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text

    @property
    def is_cpp(self) -> bool:
        return self.path.endswith(CPP_SUFFIXES)

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @cached_property
    def lines(self) -> List[str]:
        return self.text.splitlines()

    @cached_property
    def code(self) -> str:
        """C++ text with comments and the contents of literals blanked out; line numbers stay."""
        return blank_literals(self.text)


# Raw strings come first: their quotes and slashes have no meaning. A digit separator is no character literal.
LITERAL = re.compile(
    r'R"(?P<d>[^()\\\s]{0,16})\((?:.|\n)*?\)(?P=d)"'
    r"|//[^\n]*|/\*(?:.|\n)*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'"
)


def blank_literals(text: str) -> str:
    """Replaces comments by blanks and string contents by nothing visible, newlines kept."""

    def blank(found: re.Match[str]) -> str:
        piece = found[0]
        kept = re.sub(r"[^\n]", " ", piece)
        return kept if piece.startswith("/") else '"' + kept[1:-1] + '"'

    return LITERAL.sub(blank, text)
