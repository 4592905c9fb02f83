"""An MPI that takes CUDA memory is given it: real Open MPI, on the tests' own GPUs."""

import subprocess
from pathlib import Path
from typing import Dict

import fake_gpu
import mpi_support
import pytest
from harness import ROOT

OPEN_MPI_4 = mpi_support.DEBIAN[0]

# An MPI that says it takes CUDA memory, and does, because the memory of the tests' GPUs is the host's. It
# refuses what is not memory of a GPU.
TAKES_CUDA = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int PMPI_Allreduce(const void*, void*, int, void*, void*, void*);
static int calls;
int allreduces(void) { return calls; }
int MPIX_Query_cuda_support(void) { return 1; }
int MPI_Allreduce(const void* in, void* out, int count, void* type, void* op, void* comm) {
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW);
  int (*ask)(void*, int, unsigned long long) = dlsym(cuda, "cuPointerGetAttribute");
  unsigned kind = 0;
  if (ask(&kind, 2, (unsigned long long)out) != 0 || kind != 2) {
    fprintf(stderr, "MPI_Allreduce was given host memory\n");
    abort();
  }
  ++calls;
  return PMPI_Allreduce(in, out, count, type, op, comm);
}
"""

WITHOUT_STAGING = """
import ctypes
import rueda.numpy as hvd
import fake_gpu
from rueda import _core
hvd.init()
me, n = hvd.rank(), hvd.size()
driver = fake_gpu.Driver(me)
stream = driver.stream()
def mine(shape, value=me + 1, dtype="float32"):
    return fake_gpu.array(driver, np.full(shape, value), stream, dtype)
def see(array):
    return fake_gpu.read(driver, array)
for count in (0, 7, 100_000):  # each has its value only later
    assert (see(hvd.allreduce(mine(count), op=hvd.Sum, name=f"sum {count}")) == 3).all()
for dtype, op, expected in [("float64", hvd.Average, 1.5), ("int64", hvd.Sum, 3), ("uint8", hvd.Max, 2),
                            ("int16", hvd.Product, 2), ("float16", hvd.Min, 1), ("bool", hvd.Max, 1)]:
    value = 1 if dtype == "bool" else me + 1
    assert (see(hvd.allreduce(mine(100, value, dtype), op=op)) == expected).all(), dtype
assert (see(hvd.allreduce(mine(9), op=hvd.Average, prescale_factor=2.0, postscale_factor=3.0)) == 9).all()
many = hvd.grouped_allreduce([mine(5), mine((2, 3)), mine(0)], op=hvd.Sum)
assert all((see(one) == 3).all() for one in many)
assert see(hvd.allgather(mine((me + 1, 2))))[:, 0].tolist() == [1, 2, 2]
assert (see(hvd.broadcast(mine(1000), 1)) == 2).all()
assert (see(hvd.reducescatter(mine((5, 2)), op=hvd.Sum)) == 3).all()
assert see(hvd.alltoall(mine(3), splits=[1, 2])[0]).tolist() == [1] * (me + 1) + [2] * (me + 1)
both = hvd.allreduce(np.full(100, me + 1.0), op=hvd.Sum)  # host memory, beside it
assert (both == 3).all()
about = json.loads(_core.describe())
assert about["device"] == {"backend": "mpi"}, about
assert driver.calls("cuMemHostAlloc") == 0, "memory for staging was allocated"
assert ctypes.CDLL(os.environ["RUEDA_MPI_LIBRARY"]).allreduces() >= 10
print("DONE", flush=True)
"""


@pytest.fixture
def cuda_mpi(tmp_path: Path) -> Dict[str, str]:
    """Variables for ranks with GPUs and an Open MPI that takes CUDA memory."""
    OPEN_MPI_4.launcher()  # skips if it is not installed
    source, file = tmp_path / "takes_cuda.c", tmp_path / "libmpi_takes_cuda.so"
    source.write_text(TAKES_CUDA)
    link = ["-Wl,--no-as-needed", "-l:libmpi.so.40", "-ldl"]
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(file), *link], check=True)
    variables = {
        **mpi_support.environment(tmp_path),
        **fake_gpu.found_by_name(),
        "RUEDA_GPU_OPERATIONS": "mpi",
        "RUEDA_MPI_LIBRARY": str(file),
        "RUEDA_LOG_LEVEL": "info",
    }
    variables["PYTHONPATH"] += f":{ROOT / 'tests/multiprocess'}"
    return variables


@fake_gpu.needed
def test_an_mpi_that_takes_cuda_memory_is_given_it_without_staging(
    cuda_mpi: Dict[str, str], tmp_path: Path
) -> None:
    output = mpi_support.run_well(
        [*OPEN_MPI_4.command(2), *mpi_support.write_script(tmp_path, WITHOUT_STAGING)], cuda_mpi
    )
    assert output.count("DONE") == 2, output
    assert output.count("GPU tensors go to MPI where they are: Open MPI 4.") == 1, output


DIRECT_LOSS = """
import rueda.numpy as hvd
import fake_gpu
from rueda.errors import HorovodInternalError
hvd.init()
driver = fake_gpu.Driver(hvd.rank())
stream = driver.stream()
try:
    for step in range(1000):
        if step == 5 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        array = fake_gpu.array(driver, np.ones(1000), stream)
        fake_gpu.read(driver, hvd.allreduce(array, name=f"gradient {step % 4}"))
except HorovodInternalError as error:
    print(f"NAMED {error}", flush=True)
    open(os.environ["NEWS"], "w").write(str(error))
"""


@fake_gpu.needed
def test_a_rank_killed_while_mpi_has_cuda_memory_is_named(cuda_mpi: Dict[str, str], tmp_path: Path) -> None:
    news = tmp_path / "news"
    command = [*OPEN_MPI_4.command(2, survives=True), *mpi_support.write_script(tmp_path, DIRECT_LOSS)]
    output = mpi_support.run(command, {**cuda_mpi, "NEWS": str(news)}).stdout
    assert news.exists() and "rank 1" in news.read_text() and "was lost" in news.read_text(), output
