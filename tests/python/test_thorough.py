"""Which tests `make test` leaves to `make test-all` (tests/conftest.py, tools/run_tests.py)."""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import run_tests  # noqa: E402 (found in tools)

spec = importlib.util.spec_from_file_location("conftest_of_all_tests", ROOT / "tests/conftest.py")
conftest = importlib.util.module_from_spec(spec)
spec.loader.exec_module(conftest)


def item(name, *markers):
    return SimpleNamespace(
        name=name, iter_markers=lambda _: [SimpleNamespace(args=words) for words in markers]
    )


def left_of(items, *arguments):
    """What is left of these tests, and what pytest is told to have been left out."""
    left_out = []
    hook = SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items))
    items = list(items)
    conftest.pytest_collection_modifyitems(SimpleNamespace(args=arguments, hook=hook), items)
    return [one.name for one in items], [one.name for one in left_out]


ITEMS = [
    item("test_a"),
    item("test_b", ()),
    item("test_c[jax]", ("torch", "keras")),
    item("test_c[torch]", ("torch", "keras")),
    item("test_torch[jax]", ("torch",)),  # the word must be in the case
]


def test_marked_tests_and_cases_are_left_out_and_counted(monkeypatch):
    monkeypatch.delenv("RUEDA_TEST_THOROUGH", raising=False)
    expected = (["test_a", "test_c[jax]", "test_torch[jax]"], ["test_b", "test_c[torch]"])
    assert left_of(ITEMS, "tests/python") == expected


def test_all_run_where_they_are_asked_for(monkeypatch):
    monkeypatch.delenv("RUEDA_TEST_THOROUGH", raising=False)
    everything = ([one.name for one in ITEMS], [])
    assert left_of(ITEMS, "tests/python/test_x.py::test_b") == everything
    monkeypatch.setenv("RUEDA_TEST_THOROUGH", "1")
    assert left_of(ITEMS, "tests/python") == everything


@pytest.mark.parametrize(
    ("words", "release_has_all", "portable"),
    [
        ((), False, False),
        (("--thorough",), True, True),
        (("--only", "cpp"), True, False),
        (("--only", "portable"), True, True),
    ],
)
def test_the_stages_of_a_run(monkeypatch, tmp_path, words, release_has_all, portable):
    """Where AddressSanitizer runs too, each C++ program runs under it, in the release build, or in both."""
    monkeypatch.setenv("RUEDA_TEST_THOROUGH", "")  # main may set it
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(run_tests, "BUILD", tmp_path)
    monkeypatch.setattr(run_tests, "RELEASE", run_tests.Suite("release"))
    monkeypatch.setattr(run_tests, "ASAN", run_tests.Suite("asan"))
    monkeypatch.setattr(run_tests, "TSAN", run_tests.Suite("tsan"))
    monkeypatch.setattr(run_tests.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["run_tests.py", *words])
    stages = []
    monkeypatch.setattr(run_tests, "run_all", lambda lanes, wanted: stages.extend(wanted))
    assert run_tests.main() == 0
    assert ("portable" in stages) == portable
    programs = ["bench_test", "kernels_test", "runtime_test"]
    for preset in ("release", "asan"):
        (tmp_path / preset).mkdir()
        (tmp_path / preset / "tests.txt").write_text("\n".join(programs))
    monkeypatch.setattr(sys.modules["cpp_tests"], "BUILD", tmp_path)
    release = [program.name for program in run_tests.RELEASE.programs()]
    asan = [program.name for program in run_tests.ASAN.programs()]
    assert (release == programs) == release_has_all
    assert set(release) | set(asan) == set(programs)
    if not release_has_all:
        assert (release, asan) == (["bench_test", "kernels_test"], ["kernels_test", "runtime_test"])
