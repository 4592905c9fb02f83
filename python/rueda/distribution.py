"""Whether the imported package is the one that the distribution rueda-train has installed.

On PyPI the bare name `rueda` is another project's. Its files land in the same folder, over ours.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import os
import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

NAME = "rueda-train"
OTHER = "rueda"  # of PyPI; and of rueda-train before it had its name
_FIRST = "rueda/__init__.py"  # every package that is called rueda brings one
AGAIN = f"`pip install --force-reinstall --no-deps {NAME}`"

_is_told = False


def warn_once(stacklevel: int) -> None:
    """Warns in this process's first init if the imported package is not the installed one."""
    global _is_told
    if _is_told:
        return
    _is_told = True
    found = ""
    with suppress(Exception):  # what installers have written may be anything, and no job fails for it
        found = problem(package_folder(), sys.path)
    if found:
        warnings.warn(found, RuntimeWarning, stacklevel=stacklevel + 1)


def package_folder() -> Path:
    """The folder of the imported package. A namespace, which has no __init__.py, has one as well."""
    import rueda

    return Path(next(iter(rueda.__path__)))


def problem(folder: Path, places: Iterable[str]) -> str:
    """Why the package in this folder is not the installed one, in sentences; "" if it is, or if nobody says.

    places: where Python looks for modules. A checkout, an editable installation and what PYTHONPATH names are
    chosen by the user, and so is a package that no distribution in these places owns.
    """
    installed = [one for one in _find(NAME, places) if _recorded(one) is not None]
    for one in installed:
        if _is_same(Path(str(one.locate_file(_FIRST))).parent, folder):
            return _written_over(one, folder, places)
    if not installed or not folder.is_dir() or _is_chosen(folder):
        return ""
    elsewhere = Path(str(installed[0].locate_file(_FIRST))).parent
    return (
        f"The package rueda is imported from {folder}, while {NAME} {installed[0].version} is installed in "
        f"{elsewhere}: the ranks of a job must not mix them. Remove the first from where Python looks "
        "(sys.path), or name it in PYTHONPATH if it is meant."
    )


def namesake(folder: Path, places: Iterable[str]) -> str:
    """Name and version of another distribution that claims files of this folder; "" if there is none."""
    for one in _find(OTHER, places):
        here = Path(str(one.locate_file(OTHER)))
        if _is_same(here, folder) and any(file.parts[0] == OTHER for file in one.files or []):
            return f"{one.metadata['Name']} {one.version}"
    return ""


def _written_over(one: importlib.metadata.Distribution, folder: Path, places: Iterable[str]) -> str:
    """A sentence if the first file of the package is not what the distribution brought."""
    recorded = _recorded(one)
    first = folder / "__init__.py"
    if recorded is None or (first.is_file() and _digest(first, recorded.mode) == recorded.value):
        return ""
    how = "has changed since" if first.is_file() else "is gone"
    other = namesake(folder, places)
    cause = f"; the distribution {other} owns it as well, on PyPI another project" if other else ""
    cure = f"Run `pip uninstall {OTHER}`, then {AGAIN}" if other else f"Run {AGAIN}"
    return f"{NAME} {one.version} has installed {first}, which {how}{cause}. {cure}."


def _find(name: str, places: Iterable[str]) -> Iterable[importlib.metadata.Distribution]:
    return importlib.metadata.distributions(name=name, path=list(places))


def _recorded(one: importlib.metadata.Distribution) -> importlib.metadata.FileHash | None:
    """What the installer has noted of the package's first file. None for an editable installation."""
    return next((file.hash for file in one.files or [] if file.as_posix() == _FIRST), None)


def _digest(path: Path, mode: str) -> str:
    digest = hashlib.new(mode, path.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _is_same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _is_chosen(folder: Path) -> bool:
    """Whether somebody has asked for the package in this folder: by PYTHONPATH, or by using a checkout."""
    named = os.environ.get("PYTHONPATH", "")
    if named and any(_is_same(Path(place), folder.parent) for place in named.split(os.pathsep)):
        return True
    about = folder.parent.parent / "pyproject.toml"
    return about.is_file() and f'name = "{NAME}"' in about.read_text(encoding="utf-8")
