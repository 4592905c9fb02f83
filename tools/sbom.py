"""What is linked into the binaries: a CycloneDX list for the wheel (PEP 770), and the licences.

The versions are those of the Debian packages that were compiled in, as dpkg knows them, unless whoever builds
the wheel took a library from elsewhere and says which. Otherwise a component has no version.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple


@dataclass(frozen=True)
class Component:
    """A library whose code is in the wheel."""

    name: str
    license: str  # SPDX
    package: Optional[str] = None  # of Debian
    version: Optional[str] = None
    license_file: Optional[Path] = None  # default: the copyright file of the package

    def found_version(self) -> Optional[str]:
        if self.version is not None or self.package is None or shutil.which("dpkg-query") is None:
            return self.version
        command = ["dpkg-query", "-W", "-f=${Version}", self.package]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        found = re.match(r"(?:\d+:)?([^-~+]+)", said)  # without epoch and Debian's revision
        return found[1] if found else None


LIBRARIES = [
    Component("openssl", "Apache-2.0", "libssl-dev"),
    Component("fmt", "MIT", "libfmt-dev"),
    Component("highway", "Apache-2.0", "libhwy-dev"),
    Component("CLI11", "BSD-3-Clause", "libcli11-dev"),
    Component("nlohmann-json", "MIT", "nlohmann-json3-dev"),
    Component("libyaml", "MIT", "libyaml-dev"),
    Component("protozero", "BSD-2-Clause AND Apache-2.0", "libprotozero-dev"),
]
GCC_RUNTIME = Component("libstdc++", "GPL-3.0-or-later WITH GCC-exception-3.1", "libstdc++-12-dev")


def zig_runtime(version: str, license_file: Path) -> Component:
    """The C++ library that Zig's compiler links."""
    name, license = "libc++ (of Zig)", "Apache-2.0 WITH LLVM-exception"
    return Component(name, license, version=version, license_file=license_file)


def with_openssl(version: str) -> Tuple[Component, ...]:
    """The libraries, with OpenSSL of another version than this machine's."""
    return tuple(replace(one, version=version) if one.name == "openssl" else one for one in LIBRARIES)


def document(name: str, version: str, license: str, components: List[Component]) -> str:
    """CycloneDX 1.6 as JSON. The same inputs give the same text."""
    listed: List[Dict[str, Any]] = []
    for component in components:
        entry: Dict[str, Any] = {"type": "library", "name": component.name}
        found = component.found_version()
        if found is not None:
            entry["version"] = found
        choice = "expression" if " " in component.license else "license"
        entry["licenses"] = [
            {choice: component.license if choice == "expression" else {"id": component.license}}
        ]
        listed.append(entry)
    about = {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
        "licenses": [{"license": {"id": license}}],
    }
    whole = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": about},
        "components": listed,
    }
    return json.dumps(whole, indent=2) + "\n"


def license_texts(components: List[Component]) -> Dict[str, bytes]:
    """Path below the folder of licences -> text, of components whose licence is on this machine."""
    texts = {}
    for component in components:
        path = component.license_file or Path(f"/usr/share/doc/{component.package}/copyright")
        if path.exists():
            texts[f"linked/{component.name}.txt"] = path.read_bytes()
    return texts
