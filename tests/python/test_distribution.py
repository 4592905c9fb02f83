"""Which distribution owns the imported package: ours, another project's `rueda`, or nobody."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Dict, List

import pytest

ROOT = Path(__file__).resolve().parents[2]
STRANGER = '"""Measures the wind."""\n__version__ = "1.2"\n'

# Prints the warnings of two calls of init in a job of one.
INIT = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from rueda.basics import basics
    basics.init()
    basics.shutdown()
    basics.init()
print(basics.size(), [str(one.message) for one in caught if one.category is RuntimeWarning])
"""


def digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def make_wheel(folder: Path, name: str, version: str, files: Dict[str, bytes]) -> Path:
    """A wheel with these files."""
    info = f"{name}-{version}.dist-info"
    about = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
    files = {
        **files,
        f"{info}/METADATA": about.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},{digest(data)},{len(data)}" for path, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, data in files.items():
            archive.writestr(file, data)
    return path


def our_files() -> Dict[str, bytes]:
    package = ROOT / "python"
    return {
        path.relative_to(package).as_posix(): path.read_bytes() for path in (package / "rueda").rglob("*.py")
    }


class Site:
    """A folder where pip installs, and where Python looks."""

    def __init__(self, folder: Path) -> None:
        self.wheels, self.path, self.folder = folder / "wheels", folder / "site", folder
        self.wheels.mkdir()
        self.path.mkdir()

    def install(self, name: str, version: str, files: Dict[str, bytes]) -> None:
        """As pip does it: files that are there are written over, and RECORD is kept."""
        with zipfile.ZipFile(make_wheel(self.wheels, name, version, files)) as archive:
            archive.extractall(self.path)

    def uninstall(self, name: str) -> None:
        """Deletes what RECORD lists, whoever else owns it."""
        (info,) = self.path.glob(f"{name}-*.dist-info")
        for line in (info / "RECORD").read_text().splitlines():
            (self.path / line.split(",")[0]).unlink(missing_ok=True)
        info.rmdir()

    def run(self, program: List[str], places: List[Path], pythonpath: str = "") -> str:
        """Runs Python without any other place for packages, and returns its output."""
        sys.path.insert(0, str(ROOT / "tests/multiprocess"))
        from harness import library

        hidden = ("PYTHON", "RUEDA_", "HOROVOD_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        env["RUEDA_LIBRARY"] = library()
        if pythonpath:
            env["PYTHONPATH"] = pythonpath
        kept = f"import sys; sys.path[1:1] = {[str(place) for place in places]}\n"
        code = ["-c", kept + program[1]] if program[0] == "-c" else program
        done = subprocess.run(
            [sys.executable, "-S", *code],
            env=env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def warnings(self, *places: Path, pythonpath: str = "") -> List[str]:
        size, _, said = self.run(["-c", INIT], [*places, self.path], pythonpath).partition(" ")
        assert size == "1"
        found: List[str] = json.loads(said.replace("'", '"')) if said.strip() != "[]" else []
        return found


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_our_own_distribution_is_silent(site: Site) -> None:
    site.install("rueda_train", "0.1.0", our_files())
    assert site.warnings() == []


def test_another_projects_rueda_over_ours_is_named_once(site: Site) -> None:
    site.install("rueda_train", "0.1.0", our_files())
    site.install("rueda", "1.2", {"rueda/__init__.py": STRANGER.encode()})
    (said,) = site.warnings()
    assert said.startswith(
        f"rueda-train 0.1.0 has installed {site.path}/rueda/__init__.py, which has changed"
    )
    assert "the distribution rueda 1.2 owns it as well" in said
    assert said.endswith("then `pip install --force-reinstall --no-deps rueda-train`.")


def test_ours_over_another_projects_is_silent_until_that_is_uninstalled(site: Site) -> None:
    site.install("rueda", "1.2", {"rueda/__init__.py": STRANGER.encode()})
    site.install("rueda_train", "0.1.0", our_files())
    assert site.warnings() == []
    site.uninstall("rueda")
    (said,) = site.warnings()
    assert "/rueda/__init__.py, which is gone. Run `pip install" in said
    site.install("rueda_train", "0.1.0", our_files())
    assert site.warnings() == []


def test_a_copy_that_hides_the_installed_one_is_named_with_both_places(site: Site, tmp_path: Path) -> None:
    site.install("rueda_train", "0.1.0", our_files())
    shutil.copytree(site.path / "rueda", tmp_path / "scripts/rueda")
    (said,) = site.warnings(tmp_path / "scripts")
    assert (
        f"imported from {tmp_path}/scripts/rueda, while rueda-train 0.1.0 is installed in {site.path}" in said
    )


def test_what_pythonpath_names_is_meant(site: Site, tmp_path: Path) -> None:
    site.install("rueda_train", "0.1.0", our_files())
    shutil.copytree(site.path / "rueda", tmp_path / "mine/rueda")
    assert site.warnings(tmp_path / "mine", pythonpath=f"/nowhere:{tmp_path}/mine") == []


def test_a_checkout_is_meant(site: Site) -> None:
    site.install("rueda_train", "0.1.0", our_files())
    assert site.warnings(ROOT / "python") == []


def test_a_package_that_nobody_has_installed_is_silent(site: Site, tmp_path: Path) -> None:
    for path, data in our_files().items():
        (tmp_path / "target" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "target" / path).write_bytes(data)
    site.install("rueda", "1.2", {"rueda/wind.py": b""})  # elsewhere, and hidden
    assert site.warnings(tmp_path / "target") == []


def test_an_editable_installation_is_silent(site: Site, tmp_path: Path) -> None:
    site.install("rueda_train", "0.1.0", {"__editable__.rueda_train.pth": b"/checkout/python\n"})
    shutil.copytree(ROOT / "python/rueda", tmp_path / "linked/rueda")
    assert site.warnings(tmp_path / "linked") == []


def test_two_installations_in_two_places_are_silent_where_the_first_is_imported(
    site: Site, tmp_path: Path
) -> None:
    (tmp_path / "user").mkdir()
    first = Site(tmp_path / "user")
    for one in (first, site):
        one.install("rueda_train", "0.1.0", our_files())
    assert site.warnings(first.path) == []


def test_metadata_that_cannot_be_read_fails_no_job(site: Site) -> None:
    site.install("rueda_train", "0.1.0", our_files())
    (record,) = site.path.glob("*.dist-info/RECORD")
    record.write_bytes(b"\xff\xfe\0,sha256,x,,,\n")
    assert site.warnings() == []


def test_doctor_tells_who_owns_the_folder(site: Site) -> None:
    look = ["-c", "import json; from rueda import doctor; print(json.dumps(doctor.look()))"]
    site.install("rueda", "1.2", {"rueda/__init__.py": STRANGER.encode()})
    site.install("rueda_train", "0.1.0", our_files())
    said = json.loads(site.run(look, [site.path]))
    assert said["broken"] == []
    assert any("rueda-train and rueda 1.2 own the same folder" in one for one in said["advice"])
    site.install("rueda", "1.2", {"rueda/__init__.py": STRANGER.encode()})
    said = json.loads(site.run(look, [site.path]))
    assert any("which has changed since" in one for one in said["broken"])


# ---- make setup ----


def test_what_set_up_does_not_know_is_refused_before_anything_is_installed() -> None:
    unknown = subprocess.run(
        [sys.executable, ROOT / "tools/setup_venv.py", "nonsense"], capture_output=True, text=True, timeout=90
    )
    assert unknown.returncode == 1 and "nothing or 'demo' is expected, not 'nonsense'" in unknown.stderr
    base = Path(sys.base_prefix) / "bin" / "python3"
    other = subprocess.run(
        [base, ROOT / "tools/setup_venv.py", "demo"], capture_output=True, text=True, timeout=90
    )
    assert other.returncode == 1 and "would fill " in other.stderr


def test_setup_takes_the_former_distribution_away_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import setup_venv

    packages = tmp_path / "lib/python3.11/site-packages"
    (packages / "rueda-0.1.0.dist-info").mkdir(parents=True)
    (tmp_path / "rueda_train-0.1.0-py3-none-any.whl").touch()
    ran: List[str] = []
    monkeypatch.setattr(setup_venv, "run", lambda *words: ran.append(" ".join(words)))
    monkeypatch.setattr(setup_venv, "DIST", tmp_path)
    monkeypatch.setattr(setup_venv.sys, "prefix", str(tmp_path))
    (packages / "rueda_train-0.1.0.dist-info").mkdir()
    assert not setup_venv.is_rueda_installed(), "both are there"
    setup_venv.install_wheel()
    assert [" uninstall -y rueda" in words for words in ran] == [True, False]
    assert ran[1].endswith("rueda_train-0.1.0-py3-none-any.whl")
    (packages / "rueda-0.1.0.dist-info").rmdir()
    assert setup_venv.is_rueda_installed()
    ran.clear()
    setup_venv.install_wheel()
    assert len(ran) == 1
