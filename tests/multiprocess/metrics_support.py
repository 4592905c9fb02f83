"""A program that counts, and a real Prometheus that reads what it shows."""

import contextlib
import http.server
import json
import os
import subprocess
import time
import urllib.request

from harness import CASE_LIMIT_S, library
from launch_support import ROOT, RUEDA

PATIENCE_S = CASE_LIMIT_S

TRAINS = """
import os, sys, time
import numpy, rueda.numpy as hvd
hvd.init()
for step in range(7):
    hvd.allreduce(numpy.ones(10, numpy.float32), name="a")
    hvd.mark_step()
print("trained", flush=True)
"""
METRICS = f"{TRAINS}sys.stdin.read()\n"


def environment_of(folder, **more):
    """Of a process that uses the folder as the private one of its user."""
    paths = {"PYTHONPATH": str(ROOT / "python"), "RUEDA_LIBRARY": library(), "XDG_RUNTIME_DIR": str(folder)}
    return {**os.environ, **paths, **more}


def rueda(folder, *arguments):
    """Exit status, stdout and stderr of the command, for a user with this private folder."""
    done = subprocess.run(
        [RUEDA, *arguments],
        env=environment_of(folder),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def until(answer, is_enough, patience_s=PATIENCE_S):
    """The first answer that is enough. Fails with the last one if none is within that time."""
    end = time.monotonic() + patience_s
    found = answer()
    while not is_enough(found) and time.monotonic() < end:
        found = answer()
    assert is_enough(found), found
    return found


@contextlib.contextmanager
def prometheus(folder, config):
    """Debian's Prometheus with this configuration, as a function that queries it."""
    file = folder / "prometheus.yml"
    file.write_text(config)
    with http.server.HTTPServer(("127.0.0.1", 0), None) as probe:
        own = probe.server_address[1]
    options = [f"--config.file={file}", f"--storage.tsdb.path={folder}/db"]
    process = subprocess.Popen(
        ["prometheus", *options, f"--web.listen-address=127.0.0.1:{own}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def query(expression):
        try:
            address = f"http://127.0.0.1:{own}/api/v1/query?query={expression}"
            with urllib.request.urlopen(address, timeout=5) as answer:
                return json.load(answer)["data"]["result"]
        except OSError:
            return []

    try:
        yield query
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def scraped(folder, target, *ports):
    """What Prometheus knows of rueda_steps_total once it has scraped all of these ports."""
    job = {"job_name": "r", "scrape_interval": "1s", **target}
    job["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in ports]}]
    config = json.dumps({"scrape_configs": [job]})  # YAML contains JSON
    with prometheus(folder, config) as query:
        return until(lambda: query("rueda_steps_total"), lambda found: len(found) == len(ports))
