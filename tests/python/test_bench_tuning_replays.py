"""bench/tuning_replays.py with a command in place of `rueda` that writes what a replay writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import List

ROOT = Path(__file__).resolve().parents[2]
REPLAY = """#!{python}
import json, os, sys
words = sys.argv[1:]
with open({calls!r}, "a") as calls:
    calls.write(json.dumps([words, os.environ.get("RUEDA_TUNE", "")]) + "\\n")
row = {{"correct": True, "step_ms": 3000, "step_mean_ms": 3100}}
with open(words[words.index("--json") + 1], "w") as report:
    json.dump({{"results": [row]}}, report)
if os.environ.get("RUEDA_TUNE") != "off":
    with open(os.environ["RUEDA_TUNE_LOG"], "w") as log:
        log.write("tried,gain_percent,kept\\n\\"chunks of 1 MiB\\",,0\\n\\"direct\\",20.00,1\\n")
        log.write("\\"best: direct\\",0.00,1\\n")
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    fake = folder / "rueda"
    fake.write_text(REPLAY.format(python=sys.executable, calls=str(folder / "calls")))
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    environment = {name: value for name, value in environment.items() if name != "RUEDA_TUNE"}
    command = [sys.executable, str(ROOT / "bench/tuning_replays.py"), str(folder / "tuning.json"), *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)


def test_one_case_runs_alone_without_the_tuner_with_it_and_without_it_again(tmp_path: Path) -> None:
    done = run(tmp_path, "--only", "VGG-16")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2:] == [
        "| VGG-16, 4 hosts, 10 Gbit/s | 3100, 3100 | 3100 | 3000 | 2 | direct |"
    ]
    calls: List[List[str]] = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert [tune for _, tune in calls] == ["off", "", "off"]
    for words, _ in calls:
        assert words[:2] == ["bench", "replay"]
        assert "--model vgg16 -np 4 --rate 10gbit --dilation 1 --iterations" in " ".join(words)
    measured = json.loads((tmp_path / "tuning.json").read_text())
    assert list(measured) == ["VGG-16, 4 hosts, 10 Gbit/s"]
    assert run(tmp_path, "--only", "VGG-16").stdout == done.stdout, "from the file"
    assert len((tmp_path / "calls").read_text().splitlines()) == 3, "nothing is measured again"


def test_a_case_that_there_is_not_is_refused_with_the_names_of_all(tmp_path: Path) -> None:
    done = run(tmp_path, "--only", "VGG-99")
    assert done.returncode == 2 and "VGG-16, 4 hosts, 10 Gbit/s" in done.stderr
    assert not (tmp_path / "calls").exists()
