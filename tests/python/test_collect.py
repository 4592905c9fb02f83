"""`python -m rueda.collect`, which copies the logs of a job to a place that fsspec knows."""

import io
import os
import uuid
from pathlib import Path

import pytest

fsspec = pytest.importorskip("fsspec")

from rueda import collect  # noqa: E402


@pytest.fixture(name="url")
def make_url() -> str:
    return f"memory://{uuid.uuid4().hex}/run"


def text_at(url: str) -> str:
    with fsspec.open(url, "r") as file:
        return str(file.read())


def test_only_what_has_changed_is_copied(tmp_path: Path, url: str) -> None:
    (tmp_path / "rank-0000.out").write_text("one\n")
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "events").write_text("e")
    collector = collect.Collector(tmp_path, url)
    assert collector.copy_changed() == 2
    assert collector.copy_changed() == 0
    with open(tmp_path / "rank-0000.out", "a") as log:
        log.write("two\n")
    assert collector.copy_changed() == 1
    assert text_at(f"{url}/rank-0000.out") == "one\ntwo\n" and text_at(f"{url}/tensorboard/events") == "e"


def names_at(url: str) -> set[str]:
    files, root = fsspec.core.url_to_fs(url)
    return {path[len(root) :].lstrip("/") for path in files.find(root)}


@pytest.mark.parametrize("scheme", ["memory://", "local://"])
def test_logs_of_an_earlier_job_are_moved_and_nothing_else(tmp_path: Path, scheme: str) -> None:
    """A smaller job would leave the files of the ranks that it does not have beside its own."""
    url = f"{scheme}{tmp_path}/run"
    folder = tmp_path / "logs"
    folder.mkdir()
    for ranks in (3, 2, 1):
        for old in folder.iterdir():
            old.unlink()
        for rank in range(ranks):
            (folder / f"rank-000{rank}.out").write_text(f"{rank} of {ranks}")
        collector = collect.Collector(folder, url)
        moved = collector.set_aside_earlier()
        assert moved == (f"earlier-{3 - ranks}" if ranks < 3 else "")
        collector.copy_changed()
        with fsspec.open(f"{url}/checkpoint-0.pt", "w") as file:
            file.write("weights")
    assert names_at(url) == {
        "checkpoint-0.pt",
        "rank-0000.out",
        *(f"earlier-1/rank-000{rank}.out" for rank in range(3)),
        *(f"earlier-2/rank-000{rank}.out" for rank in range(2)),
    }
    assert text_at(f"{url}/rank-0000.out") == "0 of 1"
    assert text_at(f"{url}/earlier-1/rank-0002.out") == "2 of 3"


def test_a_place_without_folders_is_new(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Object stores make no folder before a file is in it."""
    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "makedirs", lambda *_, **__: None)
    (tmp_path / "rank-0000.out").write_text("new")
    collector = collect.Collector(tmp_path, url)
    assert collector.set_aside_earlier() == ""
    assert collector.copy_changed() == 1


class Buckets(fsspec.AbstractFileSystem):
    """An object store with one bucket. Its driver makes others when it is asked for folders, as s3fs does."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, list[str]] = {"bucket": []}

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.objects.setdefault(path.partition("/")[0], [])

    def ls(self, path: str, detail: bool = True, **_: object) -> list[object]:
        raise FileNotFoundError(path)

    def put_file(self, lpath: str, rpath: str, **_: object) -> None:
        bucket, _, name = rpath.partition("/")
        if bucket not in self.objects:
            raise FileNotFoundError(f"The bucket {bucket} does not exist")
        self.objects[bucket].append(name)


def test_no_bucket_is_made_of_a_misspelt_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rank-0000.out").write_text("")
    store = Buckets()
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url: (store, url.partition("://")[2]))
    news = io.StringIO()
    assert collect.serve(tmp_path, "s3://buket/run", None, news) == 1
    assert news.getvalue() == "cannot copy the logs to s3://buket/run: The bucket buket does not exist\n"
    assert collect.Collector(tmp_path, "s3://bucket/run").copy_changed() == 1
    assert store.objects == {"bucket": ["run/rank-0000.out"]}


def test_the_end_of_the_input_brings_the_last_copy(tmp_path: Path, url: str) -> None:
    readable, writable = os.pipe()
    news = io.StringIO()

    class News(io.StringIO):
        def write(self, text: str) -> int:
            if text.startswith("ready"):
                (tmp_path / "rank-0000.out").write_text("last words")
                os.close(writable)
            return news.write(text)

    with os.fdopen(readable) as until:
        assert collect.serve(tmp_path, url, until, News()) == 0
    assert news.getvalue() == "ready\ndone\n"
    assert text_at(f"{url}/rank-0000.out") == "last words"


@pytest.mark.parametrize("url", ["nosuch://bucket/run", "local:///proc/nowhere/run"])
def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path, url: str) -> None:
    news = io.StringIO()
    assert collect.serve(tmp_path, url, None, news) == 1
    assert news.getvalue().startswith(f"cannot copy the logs to {url}: ") and news.getvalue().count("\n") == 1


def test_a_copy_that_fails_is_tried_again(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readable, writable = os.pipe()
    outcomes = iter([None, OSError("503 slow down"), None])
    calls = []

    def copy(self: collect.Collector) -> int:
        calls.append(self)
        outcome = next(outcomes)
        if outcome is not None:
            os.close(writable)
            raise outcome
        return 0

    monkeypatch.setattr(collect.Collector, "copy_changed", copy)
    monkeypatch.setattr(collect, "INTERVAL_S", 0.0)
    monkeypatch.setattr(collect, "SHARE", 1.0)
    news = io.StringIO()
    with os.fdopen(readable) as until:
        assert collect.serve(tmp_path, url, until, news) == 0
    assert len(calls) == 3 and news.getvalue() == "ready\ndone\n"
    assert "503 slow down; this is tried again" in capsys.readouterr().err
