"""The Python in docs/ray.md runs as it stands there."""

import re
import subprocess
import sys

import pytest
import ray_support
from harness import ROOT

if why := ray_support.missing():
    pytest.skip(why, allow_module_level=True)

BLOCKS = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/ray.md").read_text(), re.M | re.S)


@pytest.fixture
def folder():
    with ray_support.short_folder() as made:
        yield made


@pytest.mark.timeout(600)
def test_the_scripts_of_the_page_run(folder):
    assert len(BLOCKS) == 4
    script = folder / "page.py"
    script.write_text("\n".join(BLOCKS))  # the first one starts Ray, so that the others find it
    ran = subprocess.run(
        [*ray_support.IN_NAMESPACE, sys.executable, str(script)],
        env=ray_support.environment(folder),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-8000:]
    lines = ran.stdout.splitlines()
    assert re.fullmatch(r"\[\(0, [\d.e-]+\), \(1, [\d.e-]+\)\]", lines[0]), lines[0]
    assert lines[1].startswith("100 {'step': 99, 'loss': ")
    assert any(line.startswith("100 {'step': 99, 'ranks': ") for line in lines), ran.stdout[-4000:]
    assert any(re.match(r"[\d.e-]+ Checkpoint\(", line) for line in lines), ran.stdout[-4000:]
    assert lines[-1].startswith("{'lr': 0.2}"), lines[-1]
