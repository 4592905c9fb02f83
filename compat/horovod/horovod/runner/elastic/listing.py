"""A command that prints the hosts which an object in this process names, as `rueda run` wants them."""

from __future__ import annotations

import contextlib
import shlex
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from horovod.runner.elastic.discovery import HostDiscovery

LOOK_SECONDS = 1.0


@contextlib.contextmanager
def listed(discovery: HostDiscovery) -> Iterator[str]:
    """Asks the object every second meanwhile. The value is the command; it fails while the object does, which
    `rueda run` reports. What the object raises the first time is raised here.
    """
    with tempfile.TemporaryDirectory(prefix="horovod-hosts-") as folder:
        file = Path(folder) / "hosts"
        _write(file, discovery)
        over = threading.Event()

        def keep() -> None:
            while not over.wait(LOOK_SECONDS):
                try:
                    _write(file, discovery)
                except Exception as error:  # a method of the caller: the launcher goes on with what it knows
                    file.unlink(missing_ok=True)
                    print(f"horovod: the hosts cannot be found: {error}", file=sys.stderr, flush=True)

        thread = threading.Thread(target=keep, daemon=True)
        thread.start()
        try:
            yield f"cat {shlex.quote(str(file))}"
        finally:
            over.set()
            thread.join()


def _write(file: Path, discovery: HostDiscovery) -> None:
    found = discovery.find_available_hosts_and_slots()
    partial = file.with_suffix(".new")
    partial.write_text("".join(f"{host}:{slots}\n" for host, slots in found.items() if slots > 0))
    partial.replace(file)
