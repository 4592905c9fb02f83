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
