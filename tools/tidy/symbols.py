"""Rule about the built library: it exports the C ABI and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import List

from source import Finding


def foreign_exports(nm_output: str) -> List[str]:
    """Names among `nm -D --defined-only` that are not rueda_*."""
    names = [line.split()[-1] for line in nm_output.splitlines() if line.strip()]
    return [name for name in names if not name.startswith("rueda_")]


def check(library: Path) -> List[Finding]:
    if not library.exists():
        return [
            Finding(str(library), 1, "exports", "the library does not exist; build the target `rueda` first.")
        ]
    command = ["nm", "-D", "--defined-only", str(library)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [Finding(str(library), 1, "exports", f"exports {name}.") for name in foreign_exports(listed)]
