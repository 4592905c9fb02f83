"""What `make test` counts: a test that fails once and passes when repeated is flaky, and nothing is lost."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import check_results
import pytest
import run_command

REPORT = """<testsuites><testsuite>
<testcase classname="tests.a" name="good[1-x]@world 2 tcp"/>
<testcase classname="tests.a" name="once"><failure message="late"/></testcase>
<testcase classname="tests.a" name="twice"><error message="no"/></testcase>
<testcase classname="tests.a" name="left"><skipped message="there is no  jax"/></testcase>
<testcase classname="Suite" name="filtered" status="notrun"/>
</testsuite></testsuites>"""
REPEATED = """<testsuites><testsuite>
<testcase classname="tests.a" name="once"/>
<testcase classname="tests.a" name="twice"><failure message="no"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def counted(tmp_path):
    report, repeated = tmp_path / "report.xml", tmp_path / "repeated.xml"
    report.write_text(REPORT)
    repeated.write_text(REPEATED)
    tally = check_results.Tally()
    tally.add_report("pytest", report, 1, repeated)
    return tally


def test_what_fails_once_is_flaky_and_what_fails_twice_has_failed(counted):
    assert counted.passed == ["pytest: tests.a.good[1-x]", "pytest: tests.a.once"]
    assert counted.flaky == ["pytest: tests.a.once"]
    assert counted.failures == ["pytest: tests.a.twice"]
    assert counted.skips == [("pytest: tests.a.left", "there is no jax")]


def test_the_last_line_counts_all_lanes_and_flaky_tests_are_named_above_it(counted, capsys):
    total = check_results.Tally()
    total.add(counted)
    total.add(counted)
    check_results.print_end(total, 1.0)
    *above, last = capsys.readouterr().out.splitlines()
    assert last == "4 passed, 2 failed, 2 skipped"
    assert above.count("FLAKY pytest: tests.a.once: failed once, passed when it was repeated") == 2


@pytest.mark.parametrize(
    ("status", "why"),
    [(-9, "SIGKILL"), (2, "exit status 2"), (run_command.TIMED_OUT, "past its time limit")],
)
def test_a_run_that_died_is_a_failure_whatever_its_report_says(tmp_path, status, why):
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    tally = check_results.Tally()
    tally.add_report("pytest", report, status)
    assert len(tally.failures) == 3 and why in tally.failures[0]


def test_a_run_without_a_report_is_a_failure(tmp_path):
    tally = check_results.Tally()
    tally.add_report("asan/x", tmp_path / "none.xml", 0)
    assert len(tally.failures) == 1 and not tally.passed
