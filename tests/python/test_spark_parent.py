"""How a Spark task learns that the process which started it is gone."""

import os
import subprocess
import sys

import pytest

ORPHAN = """
import os, select, sys
from rueda.spark.parent import Parent

if os.fork() == 0:  # the parent of this one waits for a line, and ends
    parent = Parent()
    if sys.argv[1] == "without descriptors":
        parent.close()
    assert not parent.is_gone()
    os.write(1, b"watches\\n")
    if parent.fd is not None:
        assert select.select([parent.fd], [], [], 60)[0]
    while not parent.is_gone():
        pass
    os.write(1, b"gone\\n")
    os._exit(0)
sys.stdin.readline()
os._exit(0)
"""


@pytest.mark.parametrize("how", ["with descriptors", "without descriptors"])
def test_the_end_of_the_parent_is_noticed(how):
    process = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, how],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"watches\n"
    said, _ = process.communicate(b"\n", timeout=60)  # the orphan holds stdout until it ends
    assert said == b"gone\n"
