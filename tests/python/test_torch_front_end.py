"""What the torch front end does in one process: imports, signatures, queries, compressors, memory."""

import gc
import inspect
import os
import subprocess
import sys
import weakref

import pytest
import torch

import rueda
import rueda.torch as hvd
from rueda import _core

SET = "process_set=global"
ALLREDUCE = "average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global"
COMPRESSED = ALLREDUCE.replace("op=None", "compression=none, op=None")
SCATTER = "name=None, op=0, process_set=global, prescale_factor=1.0, postscale_factor=1.0"
SCATTER_COMPRESSED = SCATTER.replace("op=0", "compression=none, op=0")

SIGNATURES = {
    "init": "comm=None, process_sets=None",
    "start_timeline": "file_path, mark_cycles=False",
    "allreduce": f"tensor, {COMPRESSED}",
    "allreduce_async": f"tensor, {ALLREDUCE}",
    "allreduce_": f"tensor, {ALLREDUCE}",
    "allreduce_async_": f"tensor, {ALLREDUCE}",
    "grouped_allreduce": f"tensors, {COMPRESSED}",
    "grouped_allreduce_async": f"tensors, {ALLREDUCE}",
    "grouped_allreduce_": f"tensors, {ALLREDUCE}",
    "grouped_allreduce_async_": f"tensors, {ALLREDUCE}",
    "sparse_allreduce_async": f"tensor, name, op, {SET}",
    "allgather": f"tensor, name=None, {SET}",
    "allgather_async": f"tensor, name=None, {SET}",
    "grouped_allgather": f"tensors, name=None, {SET}",
    "grouped_allgather_async": f"tensors, name=None, {SET}",
    "broadcast": f"tensor, root_rank, name=None, {SET}",
    "broadcast_async": f"tensor, root_rank, name=None, {SET}",
    "broadcast_": f"tensor, root_rank, name=None, {SET}",
    "broadcast_async_": f"tensor, root_rank, name=None, {SET}",
    "alltoall": f"tensor, splits=None, name=None, {SET}",
    "alltoall_async": f"tensor, splits=None, name=None, {SET}",
    "reducescatter": f"tensor, {SCATTER_COMPRESSED}",
    "reducescatter_async": f"tensor, {SCATTER}",
    "grouped_reducescatter": f"tensors, {SCATTER_COMPRESSED}",
    "grouped_reducescatter_async": f"tensors, {SCATTER}",
    "join": "device=-1",
    "barrier": SET,
    "poll": "handle",
    "synchronize": "handle",
    # The process_set of these two and of allgather_object is rueda's own, behind what Horovod has.
    "broadcast_parameters": f"params, root_rank, {SET}",
    "broadcast_optimizer_state": f"optimizer, root_rank, model=None, {SET}",
    "broadcast_object": f"obj, root_rank=0, name=None, {SET}",
    "allgather_object": f"obj, name=None, {SET}",
    "DistributedOptimizer": "optimizer, named_parameters=None, compression=none, backward_passes_per_step=1, "
    "op=0, gradient_predivide_factor=1.0, "
    "num_groups=0, groups=None, sparse_as_dense=False, process_set=global, "
    "cross_step=False, model=None",  # rueda's own, by name only
    "SyncBatchNorm": "num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True",
    "ProcessSet": "ranks_or_comm",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
}


def shown(parameter):
    if parameter.default is inspect.Parameter.empty:
        return parameter.name
    special = {hvd.Compression.none: "none", hvd.global_process_set: "global"}
    try:
        return f"{parameter.name}={special.get(parameter.default, parameter.default)}"
    except TypeError:
        return f"{parameter.name}={parameter.default}"


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_signatures_keep_order_and_defaults(name):
    parameters = inspect.signature(getattr(hvd, name)).parameters.values()
    assert ", ".join(map(shown, parameters)) == SIGNATURES[name]


def test_constants_are_the_known_integers():
    assert (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product) == (0, 1, 2, 3, 4, 5)


def test_query_functions_answer_without_init():
    assert not hvd.is_initialized()
    assert hvd.gloo_built() is True and hvd.gloo_enabled() is False
    assert hvd.mpi_built() is False and hvd.mpi_enabled() is False
    assert (
        hvd.rocm_built() is False
        and hvd.sycl_built() is False
        and hvd.ddl_built() is False
        and hvd.ccl_built() is False
    )
    assert isinstance(hvd.cuda_built(), bool)
    assert type(hvd.nccl_built()) is int
    with pytest.raises(ValueError, match="MPI is not enabled"):
        hvd.mpi_threads_supported()


def test_version_agrees_with_the_library():
    assert rueda.__version__ == _core.version()


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_importing_rueda_imports_no_framework_and_no_library():
    done = run_python(
        "import sys, rueda, rueda.errors\n"
        "heavy = {'torch', 'numpy', 'tensorflow', 'jax', 'rueda._core'} & set(sys.modules)\n"
        "assert not heavy, heavy",
        RUEDA_LIBRARY="/nowhere",
    )
    assert done.returncode == 0, done.stderr


def test_a_missing_library_is_one_sentence():
    done = run_python("import rueda.torch", RUEDA_LIBRARY="/nowhere/librueda.so")
    assert done.stderr.splitlines()[-1].startswith(
        "ImportError: The rueda library /nowhere/librueda.so cannot be loaded"
    )


def test_missing_torch_is_one_sentence():
    done = run_python("import sys; sys.modules['torch'] = None; import rueda.torch")
    assert done.stderr.splitlines()[-1].startswith(
        "ImportError: rueda.torch needs PyTorch 2.1 or newer, but importing torch failed"
    )


def test_old_torch_is_one_sentence():
    code = "import torch; del torch.Tensor.register_post_accumulate_grad_hook; import rueda.torch"
    done = run_python(code)
    assert done.stderr.splitlines()[-1].startswith(
        "ImportError: rueda.torch needs PyTorch 2.1 or newer, but torch 2"
    )


@pytest.fixture
def alone():
    hvd.init()
    yield
    hvd.shutdown()


def test_own_compressors_are_used(alone):
    class Halves(hvd.Compression.none):
        @staticmethod
        def compress(tensor):
            return tensor / 2, 4.0

        @staticmethod
        def decompress(tensor, ctx):
            return tensor * ctx

    assert hvd.allreduce(torch.ones(2), compression=Halves).tolist() == [2, 2]


def test_compressors_leave_integers_alone():
    for compressor in (hvd.Compression.fp16, hvd.Compression.bf16, hvd.Compression.none):
        whole = torch.tensor([70000])
        sent, context = compressor.compress(whole)
        assert sent is whole and compressor.decompress(sent, context) is whole


def test_the_base_compressor_is_abstract():
    from rueda.torch.compression import Compressor

    with pytest.raises(NotImplementedError):
        Compressor.compress(torch.ones(1))
    with pytest.raises(NotImplementedError):
        Compressor.decompress(torch.ones(1), None)


def test_tensors_in_flight_stay_alive_until_synchronized(alone):
    tensor = torch.ones(1000)
    alive = weakref.ref(tensor)
    handle = hvd.allreduce_async_(tensor)
    del tensor
    gc.collect()
    assert alive() is not None
    hvd.synchronize(handle)
    gc.collect()
    assert alive() is None


def test_memory_lent_by_the_engine_is_given_back(alone, monkeypatch):
    from rueda.torch import tensors

    freed = []
    real = _core.free
    monkeypatch.setattr(tensors._core, "free", lambda address: (freed.append(address), real(address)))
    out = hvd.allgather(torch.ones(tensors.COPY_UP_TO_BYTES))
    view = out[1:]
    del out
    gc.collect()
    assert not freed and view.sum() == len(view)
    del view
    gc.collect()
    assert len(freed) == 1


def test_handles_count_from_one_and_refused_calls_take_none(alone):
    assert hvd.allreduce_async(torch.ones(1)) == 1
    with pytest.raises(ValueError):
        hvd.broadcast_async(torch.ones(1), 7)
    with pytest.raises(ValueError):
        hvd.alltoall_async(torch.ones(1), [5])
    assert hvd.allgather_async(torch.ones(1)) == 2
    assert hvd.join() == 0
    assert hvd.allreduce_async(torch.ones(1)) == 3


def test_process_sets_print_and_sort():
    process_set = hvd.ProcessSet(iter([2, 0, 1]))
    assert process_set.ranks == [0, 1, 2]
    assert str(process_set) == "ProcessSet(process_set_id=None, ranks=[0, 1, 2], mpi_comm=None)"
    assert process_set.size() is None and process_set.rank() is None
    with pytest.raises(ValueError, match="not been initialized"):
        process_set.included()


def test_rows_are_split_evenly():
    from rueda.policy import split_evenly

    assert list(split_evenly([1, 2, 3, 4, 5], 3)) == [[1, 2], [3, 4], [5]]
    assert list(split_evenly([1], 2)) == [[1], []]


def test_names_of_unnamed_operations_count_within_their_set():
    from rueda.numbering import Numbers

    numbers = Numbers()
    assert (numbers.next_in_set(0), numbers.take(0), numbers.take(5), numbers.take(0)) == (1, 1, 2, 3)
    assert (numbers.next_in_set(0), numbers.next_in_set(5)) == (3, 2)
    numbers.align(10)
    assert (numbers.next_in_set(0), numbers.take(0)) == (11, 11)
    numbers.align(4)  # a smaller number of another rank changes nothing
    assert numbers.take(0) == 12
