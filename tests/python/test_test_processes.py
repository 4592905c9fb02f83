"""Where several processes share the tests, each file is run by one of them (tests/conftest.py)."""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_file_stays_with_one_process():
    files = ["tests/python/test_tidy.py", "tests/python/test_names.py"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-n",
        "2",
        "--dist",
        "loadscope",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, *files], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    found = defaultdict(set)
    for process, file in re.findall(r"\[(gw\d+)\].* PASSED (\S+?\.py)::", done.stdout):
        found[file].add(process)
    assert sorted(found) == sorted(files), done.stdout
    assert sorted(len(processes) for processes in found.values()) == [1, 1], found
    assert len(set.union(*found.values())) == 2, found
