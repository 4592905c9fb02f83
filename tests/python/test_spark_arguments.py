"""What callers of rueda.spark may give, and what they are told otherwise. Needs neither Spark nor Java."""

import io

import pytest

from rueda.placement import Place
from rueda.spark import arguments, channel, launcher
from rueda.spark.common import checks, runs

ARGUMENTS = {
    name: None
    for name in (
        "args",
        "kwargs",
        "num_proc",
        "env",
        "nics",
        "executable",
        "stdout",
        "stderr",
        "start_timeout",
    )
} | {"fn": print, "driver_port": 0}


@pytest.mark.parametrize(
    "changes, error, words",
    [
        ({"fn": 5}, TypeError, "fn must be a function, not int"),
        ({"args": "ab"}, TypeError, "args must be a list or tuple, not str"),
        ({"args": 5}, TypeError, "args must be a list or tuple"),
        ({"kwargs": [1]}, TypeError, "kwargs must be a dict"),
        ({"num_proc": "two"}, TypeError, "num_proc must be a whole number"),
        ({"num_proc": 2.7}, TypeError, "num_proc must be a whole number"),
        ({"num_proc": True}, TypeError, "num_proc must be a whole number"),
        ({"num_proc": 0}, ValueError, "num_proc is 0"),
        ({"driver_port": 70000}, ValueError, "driver_port is 70000"),
        ({"driver_port": "x"}, TypeError, "driver_port must be a whole number"),
        ({"env": ["A"]}, TypeError, "env must be a dict of strings"),
        ({"env": {"A": 1}}, TypeError, r"env\['A'\] is 1; names and values of variables are strings"),
        ({"env": {"A=b": "x"}}, ValueError, "no = in its name"),
        ({"env": {"A": "\0"}}, ValueError, "no zero byte"),
        ({"nics": 5}, TypeError, "nics must be a list of names"),
        ({"stdout": "file"}, TypeError, "stdout must be a text stream"),
    ],
)
def test_wrong_arguments_are_refused_by_name(changes, error, words):
    with pytest.raises(error, match=words):
        arguments.check({**ARGUMENTS, **changes})


def test_arguments_that_are_meant_are_accepted():
    good = {
        "args": (1,),
        "kwargs": {"a": 1},
        "num_proc": 2,
        "env": {"A": ""},
        "nics": "lo",
        "stderr": io.StringIO(),
    }
    arguments.check({**ARGUMENTS, **good})


@pytest.mark.parametrize("value", ["soon", float("nan"), -1, 0, float("inf"), []])
def test_a_timeout_that_is_no_time_is_refused_by_name(value, monkeypatch):
    with pytest.raises(ValueError, match=r"start_timeout is .*; give a number of seconds above 0"):
        launcher.start_timeout_seconds(value)
    monkeypatch.setenv("RUEDA_SPARK_START_TIMEOUT", str(value))
    with pytest.raises(ValueError, match="RUEDA_SPARK_START_TIMEOUT is "):
        launcher.start_timeout_seconds(None)


def test_lines_that_a_stream_cannot_encode_are_shown_with_escapes():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    console = launcher.Console(stream, stream, with_time=False, verbose=0)
    console.show(channel.OUT, Place(0, 1, 0, 1, 0, 1, "a"), "caf\u00e9")
    assert raw.getvalue() == b"[0 a] caf\\xe9\n"


PARAMETERS = {name: None for name in ("sample_weight_col", "run_id", "transformation_fn", "num_proc")} | {
    "feature_cols": ["x"],
    "label_cols": ["y"],
    "batch_size": 32,
    "random_seed": 0,
}


@pytest.mark.parametrize(
    "changes, error, words",
    [
        ({"batch_size": 0}, ValueError, "batch_size is 0; it must be at least 1"),
        ({"batch_size": "32"}, TypeError, "batch_size must be a whole number, not '32'"),
        ({"batch_size": None}, TypeError, "batch_size must be a whole number"),
        ({"epochs": 0}, ValueError, "epochs is 0"),
        ({"random_seed": -1}, ValueError, "random_seed is -1"),
        ({"feature_cols": "features"}, TypeError, "feature_cols must be a list of names"),
        ({"label_cols": []}, ValueError, "label_cols is empty"),
        ({"run_id": 5}, TypeError, "run_id must be a string"),
        ({"transformation_fn": 5}, TypeError, "transformation_fn must be a function"),
    ],
)
def test_parameters_that_cannot_be_meant_are_refused_by_name(changes, error, words):
    checks.check_parameters(PARAMETERS)
    with pytest.raises(error, match=words):
        checks.check_parameters({**PARAMETERS, **changes})


def test_columns_without_numbers_are_refused_by_their_types():
    kinds = {
        "a": "array<array<float>>",
        "b": "vector",
        "c": "boolean",
        "d": "array<decimal(10,2)>",
        "e": "array<string>",
        "f": "date",
    }
    checks.check_types(kinds, ["a", "b", "c", "d"])
    for name in "ef":
        with pytest.raises(ValueError, match=f"The column {name} has the type"):
            checks.check_types(kinds, [name])


def test_each_rank_needs_a_row_for_training_and_for_validation():
    checks.check_rows(2, 2, 2)
    checks.check_rows(2, None, 2)
    for rows, words in (((1, 2), "1 training rows for 2"), ((2, 0), "0 validation rows for 2")):
        with pytest.raises(ValueError, match=words):
            checks.check_rows(*rows, 2)


def test_the_cause_of_an_error_in_the_jvm_is_its_innermost_line():
    text = (
        "An error occurred while calling o7.parquet.\n: org.a.B: outer\n\tat x\n"
        "Caused by: c.D: disk full\n\tat y"
    )
    assert checks.innermost(text) == "c.D: disk full"
    assert checks.innermost(text.partition("Caused")[0]) == "org.a.B: outer"
    assert checks.innermost("plain") == "plain" and checks.innermost("") == ""

    def fail():
        raise OSError("disk full\n")

    with pytest.raises(RuntimeError, match="Not written: disk full"):
        checks.wrapped(fail, "Not written")


def test_two_fits_at_once_do_not_share_a_run():
    with runs.alone("store/runs/a", "a"), runs.alone("store/runs/b", "b"):
        refused = pytest.raises(ValueError, match="Another fit with run_id 'a' is under way")
        with refused, runs.alone("store/runs/a", "a"):
            raise AssertionError("two at once")
    with runs.alone("store/runs/a", "a"):
        pass
