"""What every front end decides alike stands once, and imports no framework."""

import subprocess
import sys
import warnings

import pytest

from rueda import errors, exports, pickles, policy


def test_what_is_shared_imports_no_framework():
    script = """
import sys
import rueda.compression, rueda.exports, rueda.extensions, rueda.front_ends, rueda.pickles, rueda.policy
loaded = {"numpy", "torch", "tensorflow", "jax", "keras"} & set(sys.modules)
sys.exit(f"imported {loaded}" if loaded else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.path[:] = {sys.path!r}\n{script}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_front_ends_export_the_functions_of_the_job_and_the_operations():
    assert len(exports.__all__) == len(set(exports.__all__)) == 34
    for front_end in ("numpy", "torch", "tensorflow", "jax", "keras"):
        pytest.importorskip(front_end)
        module = __import__(f"rueda.{front_end}", fromlist=["__all__"])
        assert set(exports.__all__) <= set(module.__all__)
        assert all(getattr(module, name) is getattr(exports, name) for name in exports.__all__)


def test_operations_are_checked_by_name():
    policy.check_op(policy.Sum, (policy.Average, policy.Sum), "Allreduce")
    with pytest.raises(ValueError, match=r"^Allreduce: op is 'Max', but it must be one of Average, Sum\.$"):
        policy.check_op(policy.Max, (policy.Average, policy.Sum), "Allreduce")
    with pytest.raises(ValueError, match=r"op is 17, but it must be one of Average, Sum, Adasum, Min, Max"):
        policy.check_op(17, policy.OPS, "allreduce")
    with pytest.raises(ValueError, match=r"op is \[\], but it must be one of Average"):
        policy.check_op([], policy.OPS, "allreduce")
    with pytest.raises(ValueError, match="op currently only supports Average and Sum"):
        policy.check_gradient_op(policy.Adasum, "DistributedOptimizer")


def test_average_is_an_older_way_to_say_op():
    meant = policy.handle_average_backwards_compatibility
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [meant(None, None), meant(policy.Max, None)] == [policy.Average, policy.Max]
    for average, op in ((True, policy.Average), (False, policy.Sum)):
        with pytest.warns(DeprecationWarning, match="has been replaced with `op`"):
            assert meant(None, average) == op
    with pytest.raises(ValueError, match="supersedes average"):
        meant(policy.Sum, True)
    with pytest.raises(errors.HorovodInternalError, match="Reduction op type not supported"):
        meant(17, None)


@pytest.mark.parametrize("factor", [0, float("nan"), float("inf")])
def test_a_predivide_factor_must_divide(factor):
    with pytest.raises(ValueError, match="must be a finite number other than 0"):
        policy.check_predivide(policy.Average, factor)


def test_a_predivide_factor_is_a_number():
    with pytest.raises(TypeError, match="gradient_predivide_factor must be a number, not 'x'"):
        policy.check_predivide(policy.Average, "x")


@pytest.mark.parametrize("passes", [1.5, float("nan"), float("inf"), "2", None, [1]])
def test_passes_are_counted_in_whole_numbers(passes):
    with pytest.raises(ValueError, match="backward_passes_per_step must be a whole number, not"):
        policy.check_passes(passes)


@pytest.mark.parametrize("name", [5, b"x", ["x"], object()])
def test_names_are_strings(name):
    with pytest.raises(TypeError, match=f"The name has to be a string, not {type(name).__name__}"):
        policy.check_name(name)
    with pytest.raises(TypeError, match="The name has to be a string"):
        pickles.key_of(name)


def test_factors_and_roots_are_numbers():
    assert policy.check_factors(2, 0.5) == (2.0, 0.5) and policy.root_rank_of(1) == 1
    with pytest.raises(TypeError, match=r"^prescale_factor must be a number, not str \('x'\)\.$"):
        policy.check_factors("x", 1.0)
    with pytest.raises(TypeError, match=r"^postscale_factor must be a number, not int \(10"):
        policy.check_factors(1.0, 10**400)
    with pytest.raises(TypeError, match=r"root_rank must be an int, not float \(1\.5\)"):
        policy.root_rank_of(1.5)


def test_variables_come_in_a_list():
    class Variable:
        assign = None

    one = Variable()
    assert policy.variables_of(iter([one]), "broadcast_variables") == [one]
    for values, text in ((one, "put a single variable into a list"), ("x", "but got str"), (5, "got int")):
        with pytest.raises(TypeError, match=f"broadcast_variables takes a list of variables.*{text}"):
            policy.variables_of(values, "broadcast_variables")


def test_predivision_leaves_the_average_to_the_engine():
    assert policy.predivide_factors(1.0) == (1.0, 1.0)
    assert policy.predivide_factors(4.0) == (0.25, 4.0)


def test_parts_are_even_and_the_longer_ones_come_first():
    assert policy.split_evenly([1, 2, 3, 4, 5], 3) == [[1, 2], [3, 4], [5]]
    assert policy.split_evenly([1], 2) == [[1], []]
    assert [policy.even_share(7, 3, part) for part in range(3)] == [3, 2, 2]


def test_objects_travel_as_one_number_and_one_payload():
    sent = []

    def keep(payload, size):
        sent.append(payload)
        assert len(payload) == size
        return payload

    root = {"a": 1}
    assert pickles.broadcast(root, True, lambda size: size, keep) is root
    there = pickles.broadcast(None, False, lambda size: len(sent[0]), lambda payload, size: sent[0])
    assert there == root
    payloads = [pickles.dumps(value) for value in (root, [2])]
    sizes = [len(payload) for payload in payloads]
    assert pickles.allgather(None, lambda size: sizes, lambda payload: b"".join(payloads)) == [root, [2]]


def test_what_cannot_be_pickled_is_raised_here_and_told_there():
    class Odd:
        def __reduce__(self):
            raise TypeError("odd")

    told = []
    with pytest.raises(TypeError, match="odd"):
        pickles.broadcast(Odd(), True, lambda size: size, lambda payload, size: told.append(payload))
    with pytest.raises(errors.HorovodInternalError, match="could not pickle its Odd: TypeError: odd"):
        pickles.broadcast(None, False, lambda size: len(told[0]), lambda payload, size: told[0])
