"""Checks the rules of STYLE.md: ``python tools/tidy [--library build/release/librueda.so]``.

Prints one line per finding, `path:line: rule: sentence`; errors make the exit status 1; warnings do not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import List

import classes
import layers
import symbols
import text
from source import Finding, Source

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT_SUFFIXES = {
    ".h",
    ".hpp",
    ".cc",
    ".cpp",
    ".c",
    ".py",
    ".md",
    ".txt",
    ".cmake",
    ".sh",
    ".toml",
    ".json",
    ".yaml",
}
TEXT_NAMES = {"Makefile", "CMakeLists.txt", "run"}


def read_tree(root: Path) -> List[Source]:
    """Every text file git tracks or would track."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode().split("\0")
    sources = []
    for name in sorted(set(listed)):
        path = root / name
        is_text = path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES
        if name and is_text and path.is_file() and not path.is_symlink():
            sources.append(Source(name, path.read_text(encoding="utf-8", errors="replace")))
    return sources


def check(sources: List[Source]) -> List[Finding]:
    """Applies all rules that need only the texts."""
    findings: List[Finding] = []
    for source in sources:
        findings += text.check(source)
    findings += layers.check(sources)
    findings += classes.check(sources)
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(description="the house rules as a test")
    parser.add_argument("--library", type=Path, help="librueda.so whose exported symbols are checked")
    parser.add_argument("--quiet-warnings", action="store_true", help="only count warnings")
    arguments = parser.parse_args()
    findings = check(read_tree(ROOT))
    if arguments.library:
        findings += symbols.check(arguments.library)
    errors = [f for f in findings if f.is_error]
    for finding in findings:
        if finding.is_error or not arguments.quiet_warnings:
            print(finding)
    print(f"tidy: {len(errors)} errors, {len(findings) - len(errors)} warnings")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
