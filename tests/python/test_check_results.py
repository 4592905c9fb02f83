"""What `make test` counts: a test that fails once and passes when repeated is flaky, and nothing is lost."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import check_results
import pytest
import python_tests
import run_command

REPORT = """<testsuites><testsuite>
<testcase classname="tests.a" name="good[1-x]@world 2 tcp"/>
<testcase classname="tests.a" name="once"><failure message="late"/></testcase>
<testcase classname="tests.a" name="twice"><error message="no"/></testcase>
<testcase classname="tests.a" name="left"><skipped message="there is no  jax"/></testcase>
<testcase classname="Suite" name="filtered" status="notrun"/>
</testsuite></testsuites>"""
REPEATED = """<testsuites><testsuite>
<testcase classname="tests.a" name="once" time="1.25"/>
<testcase classname="tests.a" name="twice"><failure message="no"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def counted(tmp_path):
    report, repeated = tmp_path / "report.xml", tmp_path / "repeated.xml"
    report.write_text(REPORT)
    repeated.write_text(REPEATED)
    tally = check_results.Tally()
    tally.add_report("pytest", report, 1, [repeated, repeated])
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
    assert above[-1] == "2 flaky"
    flaky = above.index(
        "FLAKY pytest: tests.a.once: failed once, passed whenever it was repeated (1.2, 1.2 s). "
        "The first time:"
    )
    assert above[flaky + 1] == "    late"


@pytest.mark.parametrize(("passes", "runs"), [([True] * 5, 5), ([True, False, True, True, True], 2)])
def test_a_test_is_flaky_only_if_it_passes_in_every_repeated_run(tmp_path, passes, runs):
    def again(failed, number):
        report = tmp_path / f"{number}.xml"
        ending = "/>" if passes[number - 1] else "><failure message='late'/></testcase>"
        report.write_text(f"<testsuite><testcase classname='tests.a' name='once'{ending}</testsuite>")
        return report

    report = tmp_path / "report.xml"
    report.write_text(REPORT.replace('name="twice"><error message="no"/></testcase>', 'name="good"/>'))
    repeated = check_results.repeat(report, check_results.TIMES, again)
    tally = check_results.Tally()
    tally.add_report("pytest", report, 1, repeated)
    assert len(repeated) == runs
    assert (tally.flaky, tally.failures) == (
        (["pytest: tests.a.once"], []) if all(passes) else ([], ["pytest: tests.a.once"])
    )


def test_many_failures_are_no_accident_and_are_not_repeated(tmp_path):
    report = tmp_path / "report.xml"
    one = '<testcase classname="tests.a" name="x{}"><failure message="no"/></testcase>'
    cases = "".join(one.format(number) for number in range(check_results.MOST + 1))
    report.write_text(f"<testsuite>{cases}</testsuite>")
    assert check_results.repeat(report, 5, lambda failed, number: pytest.fail("repeated")) == []


def test_the_test_that_a_report_names_is_found():
    here = "tests.python.test_check_results"
    assert (
        python_tests.find_test(f"{here}.test_x[a.b-[1]]")
        == "tests/python/test_check_results.py::test_x[a.b-[1]]"
    )
    assert (
        python_tests.find_test(f"{here}.TestGroup.test_x")
        == "tests/python/test_check_results.py::TestGroup::test_x"
    )
    assert python_tests.find_test("tests.python.gone.test_x") == "tests.python.gone.test_x"


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


@pytest.mark.parametrize("written", [None, REPORT[:80]])
def test_a_run_without_a_whole_report_is_a_failure(tmp_path, written):
    report = tmp_path / "report.xml"
    if written:
        report.write_text(written)
    tally = check_results.Tally()
    tally.add_report("asan/x", report, 0)
    assert len(tally.failures) == 1 and not tally.passed
