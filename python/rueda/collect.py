"""Copies the logs of a job to a place that fsspec knows: `rueda run --log-dir s3://bucket/run` starts this.

It copies what has changed every 30 seconds, and once more when its standard input ends. Object stores cannot
append, so each copy of a file is a whole one; copying takes at most a tenth of the time.
"""

from __future__ import annotations

import re
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any, Dict, Sequence, TextIO, Tuple

INTERVAL_S = 30.0
SHARE = 0.1  # of the time that goes into copies while the job runs
LOG_NAME = re.compile(r"rank-\d{4,}\.(out|err|prom)")  # as src/launch/earlier_logs.h


class Collector:
    """Copies the files of a folder to a URL, which fsspec opens.

    Example:
        >>> import fsspec, pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "rank-0000.out").write_text("loss 0.5")
        >>> Collector(folder, "memory://run").copy_changed()
        1
        >>> fsspec.open("memory://run/rank-0000.out", "r").open().read()
        'loss 0.5'
    """

    def __init__(self, folder: Path, url: str) -> None:
        """Raises ImportError if fsspec or its driver is missing, and what the driver raises."""
        import fsspec

        self._folder = folder
        self._files, self._root = fsspec.core.url_to_fs(url)
        self._make_folder(self._root)
        self._copied: Dict[Path, Tuple[int, int]] = {}  # size and time of change of each file, as copied

    def _make_folder(self, path: str) -> None:
        # Object stores ("bucket/run") have no folders, and their drivers would make a misspelt bucket.
        if path.startswith("/"):
            self._files.makedirs(path, exist_ok=True)

    def set_aside_earlier(self) -> str:
        """Moves the logs of an earlier job at the URL to `earlier-N` there, as the launcher does in a folder.

        Returns the name of that folder, or "" if there were none. Drivers may raise.
        """
        self._files.invalidate_cache()
        try:
            names = [str(path).rpartition("/")[2] for path in self._files.ls(self._root, detail=False)]
        except FileNotFoundError:  # object stores have no empty folders
            return ""
        logs = [name for name in names if LOG_NAME.fullmatch(name)]
        if not logs:
            return ""
        taken = [int(name[8:]) for name in names if re.fullmatch(r"earlier-\d+", name)]
        name = f"earlier-{max(taken, default=0) + 1}"
        place = f"{self._root}/{name}"
        self._make_folder(place)
        here = [f"{self._root}/{name}" for name in logs]
        self._files.copy(here, [f"{place}/{log}" for log in logs])
        self._files.rm(here)  # after all copies: a failure loses nothing
        return name

    def copy_changed(self) -> int:
        """Copies what has changed since the last call; returns the number of files. Drivers may raise."""
        count = 0
        for path in sorted(
            path for path in self._folder.rglob("*") if path.suffix != ".new" and path.is_file()
        ):
            state = path.stat().st_size, path.stat().st_mtime_ns
            if self._copied.get(path) == state:
                continue
            target = f"{self._root}/{path.relative_to(self._folder).as_posix()}"
            self._make_folder(target.rpartition("/")[0])
            self._files.put_file(str(path), target)
            self._copied[path] = state
            count += 1
        return count


def _sentence(error: BaseException, url: str) -> str:
    hint = "; install what it names, beside fsspec" if isinstance(error, ImportError) else ""
    words = " ".join(str(error).split()) or type(error).__name__
    return f"cannot copy the logs to {url}: {words}{hint}"


def serve(folder: Path, url: str, until: Any, news: TextIO) -> int:
    """Copies until the file `until` ends. Tells in `news`: "ready" after one copy, "done", or a sentence."""

    def tell(line: str) -> None:
        print(line, file=news, flush=True)

    try:
        collector: Any = Collector(folder, url)
        earlier = collector.set_aside_earlier()
        collector.copy_changed()
    except Exception as error:  # drivers raise what they like
        tell(_sentence(error, url))
        return 1
    if earlier:
        place = f"{url.rstrip('/')}/{earlier}"
        print(f"rueda: the logs of an earlier job in {url} are now in {place}", file=sys.stderr, flush=True)
    tell("ready")
    pause = INTERVAL_S
    while not select.select([until], [], [], pause)[0]:
        began = time.monotonic()
        try:
            collector.copy_changed()
        except Exception as error:
            print(f"{_sentence(error, url)}; this is tried again", file=sys.stderr, flush=True)
        pause = max(INTERVAL_S, (time.monotonic() - began) / SHARE)
    try:
        collector.copy_changed()
    except Exception as error:
        tell(_sentence(error, url))
        return 1
    tell("done")
    return 0


def main(arguments: Sequence[str]) -> int:
    """FOLDER URL, and a pipe as standard input that ends with the job."""
    # A scheduler may signal every process of a job. The logs are copied when the ranks have ended.
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    folder, url = arguments
    return serve(Path(folder), url, sys.stdin, sys.stdout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
