"""What the TensorFlow front end says without TensorFlow, its prototypes, and its plugin's file."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "multiprocess"))

from harness import library  # noqa: E402


def last_line_of(script, **environment):
    paths = os.pathsep.join(str(ROOT / part) for part in ("python", "compat/horovod"))
    env = {**os.environ, "PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_a_missing_plugin_is_one_sentence(tmp_path):
    pytest.importorskip("tensorflow")
    alone = tmp_path / "librueda.so"
    alone.symlink_to(library())
    said = last_line_of("import rueda.tensorflow", RUEDA_LIBRARY=str(alone))
    assert said.startswith("ImportError: The TensorFlow plugin ") and "reinstall rueda" in said
    assert str(tmp_path / "librueda_tensorflow.so") in said


def test_kernels_for_a_gpu_take_and_give_host_memory():
    """This TensorFlow may know no GPU; it lists the kernels that a GPU would use all the same."""
    tensorflow = pytest.importorskip("tensorflow")
    from tensorflow.python.framework import kernels, op_def_registry

    import rueda.tensorflow as hvd

    found = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.op.startswith("Horovod"):
            found.setdefault(kernel.op, {})[kernel.device_type] = sorted(kernel.host_memory_arg)
    assert len(found) == 16 and "HorovodAllreduce" in found, sorted(found)
    for name, devices in found.items():
        definition = op_def_registry.get(name)
        arguments = sorted(one.name for one in [*definition.input_arg, *definition.output_arg])
        assert devices == {"CPU": [], "GPU": arguments}, name
    assert hvd.gpu_available("tensorflow") is bool(tensorflow.config.list_physical_devices("GPU"))


PROTOTYPES = """
#include <type_traits>
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/ops.h"
#include "tensorflow/c/tf_datatype.h"
#include "tensorflow/c/tf_status.h"
#include "tensorflow/c/tf_tensor.h"
#include "plugins/tensorflow/tf_functions.h"
#define SAME(result, name, arguments) \\
  static_assert(std::is_same_v<decltype(&::name), result(*) arguments>, #name);
RUEDA_TF_FUNCTIONS(SAME)
static_assert(sizeof(TF_DataType) == sizeof(int) && sizeof(TF_Code) == sizeof(int));
static_assert(sizeof(TF_StringView) == 16);
"""


def test_prototypes_and_numbers_are_those_of_the_installed_headers(tmp_path):
    found = importlib.util.find_spec("tensorflow")
    if found is None or shutil.which("g++") is None:
        pytest.skip("no tensorflow or no g++")
    headers = Path(found.submodule_search_locations[0]) / "include"
    ours = (ROOT / "src/plugins/tensorflow/tf_api.h").read_text()
    enums = {"kTfOk": "TF_OK", "kTfUnknown": "TF_UNKNOWN", "kTfInvalidArgument": "TF_INVALID_ARGUMENT"}
    enums |= {"kTfFailedPrecondition": "TF_FAILED_PRECONDITION", "kTfAborted": "TF_ABORTED"}
    numbers = dict(re.findall(r"(kTf\w+) = (\d+),", ours))
    assert len(numbers) == 16
    checks = [f"static_assert({enums.get(k, 'TF_' + k[3:].upper())} == {v});" for k, v in numbers.items()]
    source = tmp_path / "check.cc"
    source.write_text(PROTOTYPES + "\n".join(checks) + "\n")
    command = ["g++", "-std=c++17", "-fsyntax-only", f"-I{headers}", f"-I{ROOT / 'src'}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_the_plugin_exports_its_door_alone():
    plugin = Path(library()).with_name("librueda_tensorflow.so")
    table = subprocess.run(["nm", "-D", "--defined-only", plugin], capture_output=True, text=True, check=True)
    names = {line.split()[-1] for line in table.stdout.splitlines()}
    assert names == {"rueda_tensorflow_problem", "rueda_tensorflow_is_async"}


def test_alias_and_rueda_share_their_objects():
    pytest.importorskip("tensorflow")
    import horovod.tensorflow
    import horovod.tensorflow.mpi_ops
    import rueda.tensorflow

    for name in rueda.tensorflow.__all__:
        assert getattr(horovod.tensorflow, name) is getattr(rueda.tensorflow, name)
    assert horovod.tensorflow.mpi_ops._basics is rueda.tensorflow.mpi_ops._basics
    with pytest.raises(AttributeError):
        horovod.tensorflow.no_such_name  # noqa: B018 (the access is the test)


def test_query_functions_answer_without_init():
    pytest.importorskip("tensorflow")
    import rueda.tensorflow as hvd

    assert hvd.gloo_built() is True and hvd.nccl_built() == 0
    assert not any(
        (
            hvd.sycl_built(),
            hvd.mpi_built(),
            hvd.mpi_enabled(),
            hvd.ddl_built(),
            hvd.ccl_built(),
            hvd.rocm_built(),
        )
    )
    assert hvd.cuda_built() in (True, False) and hvd.gloo_enabled() is False
    with pytest.raises(ValueError, match="MPI is not enabled"):
        hvd.mpi_threads_supported()
    assert [n for n in range(9) if hvd.check_num_rank_power_of_2(n)] == [1, 2, 4, 8]
    assert hvd.handle_average_backwards_compatibility(None, None) == hvd.Average
    with pytest.warns(DeprecationWarning, match="Parameter `average` has been replaced with `op`"):
        assert hvd.handle_average_backwards_compatibility(None, False) == hvd.Sum


def test_local_aggregation_helpers_sum_and_reduce_every_nth_time():
    tf = pytest.importorskip("tensorflow")
    from rueda.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

    reductions = []

    def reduce(gradients, variables):
        reductions.append(len(gradients))
        return [gradient * 10 for gradient in gradients]

    for average in (False, True):
        helper = LocalGradientAggregationHelperEager(2, reduce, average_aggregated_gradients=average)
        variables = [tf.Variable(1.0), tf.Variable([1.0, 1.0]), tf.Variable(0.0)]
        for _ in range(2):  # a second round begins from zero
            gradients = [tf.constant(1.0), tf.constant([2.0, 3.0]), None]
            applied = []
            helper.compute_gradients(gradients, variables)
            assert not helper.apply_gradients(lambda a=applied: a.append(1)) and not applied
            got = helper.compute_gradients(gradients, variables)
            assert helper.apply_gradients(lambda a=applied: a.append(1)) and applied == [1]
            factor = 10.0 if average else 20.0
            assert got[0] == factor and got[1].numpy().tolist() == [2 * factor, 3 * factor] and got[2] is None
    assert reductions == [2] * 4
    with pytest.raises(ValueError, match="must be > 0"):
        LocalGradientAggregationHelperEager(0, reduce)


def test_sums_of_a_failed_reduction_are_dropped():
    tf = pytest.importorskip("tensorflow")
    from rueda.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
    from rueda.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

    fails = tf.Variable(True)

    def reduce(gradients, variables):
        with tf.control_dependencies([tf.debugging.assert_equal(fails, False)]):
            return [tf.identity(gradient) for gradient in gradients]

    variables = [tf.Variable(0.0), tf.Variable(0.0)]
    helper = LocalGradientAggregationHelperEager(2, reduce)
    both, one = [tf.constant(100.0), tf.constant(100.0)], [tf.constant(1.0), None]
    helper.compute_gradients(both, variables)
    with pytest.raises(tf.errors.InvalidArgumentError):
        helper.compute_gradients(both, variables)
    fails.assign(False)
    helper.compute_gradients(one, variables)
    assert [float(total) for total in helper.compute_gradients(one, variables)] == [2.0, 0.0]

    with tf.Graph().as_default():
        gradient, fails = (tf.compat.v1.placeholder(kind, []) for kind in (tf.float32, tf.bool))
        outputs = LocalGradientAggregationHelper(2, reduce).compute_gradients([gradient], [tf.zeros([])])
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.local_variables_initializer())
            session.run(outputs, {gradient: 100.0, fails: True})
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(outputs, {gradient: 100.0, fails: True})
            session.run(outputs, {gradient: 1.0, fails: False})
            assert session.run(outputs, {gradient: 1.0, fails: False}) == [2.0]


def test_small_helpers():
    tf = pytest.importorskip("tensorflow")
    import horovod.tensorflow
    import rueda.tensorflow
    from rueda.tensorflow import util

    for front_end in (rueda.tensorflow, horovod.tensorflow):
        assert front_end._executing_eagerly() and front_end.vars_to_refs is util.vars_to_refs
        assert front_end.refs_to_vars is util.refs_to_vars
        assert front_end.gpu_available("tensorflow") == bool(tf.config.list_physical_devices("GPU"))
        assert front_end.gpu_available("no_such_framework") is False
    variables = [tf.Variable(1.0), [tf.Variable(2.0)]]
    refs = util.vars_to_refs(variables)
    back = util.refs_to_vars(refs)
    assert hash(refs) is not None and back[0] is variables[0] and back[1][0] is variables[1][0]
    assert util._normalize_name("a/b:0") == "a_b_0" and util._executing_eagerly()
