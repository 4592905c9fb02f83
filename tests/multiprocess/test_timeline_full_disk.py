"""A timeline on a disk that is full: rank 1 writes to a small tmpfs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Iterator

import pytest
from harness import assert_all_succeed, launch
from test_timeline import TRAINING, summary, timeline

DISK_BYTES = 2 << 20


@pytest.fixture(name="disk")
def mount_disk(tmp_path: Path) -> Iterator[Path]:
    """2 MiB, of which 24 KiB are free until the file `other` is removed."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a disk needs root")
    try:
        (disk / "other").write_bytes(bytes(DISK_BYTES - (24 << 10)))
        (tmp_path / "t.json.rank1.rec").symlink_to(disk / "rank1.rec")
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True, timeout=90)


def remark_of(path: Path) -> str:
    remarks = [each for each in summary(path)["remarks"] if each.startswith("Rank 1 (host ")]
    assert len(remarks) == 1, remarks
    assert "No space left on device" in remarks[0] and f"{path}.rank1.rec" in remarks[0]
    return str(remarks[0])


def test_a_rank_whose_disk_stays_full_is_named(disk: Path, tmp_path: Path) -> None:
    ended = launch(2, TRAINING, {"RUEDA_TIMELINE": str(tmp_path / "t.json"), "STEPS": "200"})
    assert_all_succeed(ended)
    assert ended[1].output.count("until there is room again; training continues") == 1, ended[1].output
    assert disk.exists()
    remark = remark_of(tmp_path / "t.json")
    assert re.search(r"lost \d+ records from .* after it began to the end, because its disk was full", remark)
    found = summary(tmp_path / "t.json")
    assert 10 < found["steps"] < 199 and found["unattributed"] < 0.02
    text = timeline("summary", str(tmp_path / "t.json"))
    assert f"Note: {remark}" in text


def test_records_go_on_when_there_is_room_again(disk: Path, tmp_path: Path) -> None:
    body = TRAINING.replace(
        "    hvd.mark_step()",
        "    hvd.mark_step()\n    if step == 150 and hvd.rank() == 1:\n"
        f"        os.remove({str(disk / 'other')!r})",
    )
    environment = {"RUEDA_TIMELINE": str(tmp_path / "t.json"), "STEPS": "500"}
    assert_all_succeed(launch(2, body, environment))
    remark = remark_of(tmp_path / "t.json")
    assert re.search(
        r"lost \d+ records from .* after it began to [\d.]+ s, because its disk was full", remark
    )
    found = summary(tmp_path / "t.json")
    assert 100 < found["steps"] < 350, "those after the gap"
    assert found["unattributed"] < 0.02
    timeline("merge", str(tmp_path / "all.json"), str(tmp_path / "t.json"))
    assert "DROPPED_EVENTS" in (tmp_path / "all.json").read_text()
