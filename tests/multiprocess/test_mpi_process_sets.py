"""Process sets from communicators of mpi4py: each rank names those that it is a member of."""

from pathlib import Path

import mpi_support
import pytest
from mpi_support import ALL, PYPI, Mpi

SETS_OF_COMMUNICATORS = """
from mpi4py import MPI
import pytest
import rueda.numpy as hvd
from rueda.process_sets import process_set_table
world = MPI.COMM_WORLD
rank = world.rank
def end():
    world.Barrier()
    hvd.shutdown()

half = world.Split(rank % 2, rank)
mine = hvd.ProcessSet(half)
hvd.init(world, process_sets=[mine])
assert process_set_table.ids_and_ranks() == {0: [0, 1, 2, 3], 1: [0, 2], 2: [1, 3]}
assert (mine.process_set_id, mine.ranks, mine.rank()) == (1 + rank % 2, [rank % 2, rank % 2 + 2], half.rank)
assert hvd.allgather(np.array([rank]), process_set=mine).tolist() == mine.ranks
hvd.init(world, process_sets=[hvd.ProcessSet(half)])  # nothing new
end()

# Rows and columns of a grid, and a list beside them. Without a communicator the job is COMM_WORLD.
row, column = (hvd.ProcessSet(world.Split(color, rank)) for color in (rank // 2, rank % 2))
hvd.init(process_sets=[hvd.ProcessSet([0, 3]), row, column])
assert process_set_table.ids_and_ranks() == {
    0: [0, 1, 2, 3], 1: [0, 3], 2: [0, 1], 3: [2, 3], 4: [0, 2], 5: [1, 3]
}
for one in (row, column):
    assert hvd.allgather(np.array([rank]), process_set=one).tolist() == one.ranks
end()

# A rank that is not a member may leave the set out.
some = world.Split(0 if rank else MPI.UNDEFINED, rank)
if rank == 0:
    with pytest.raises(ValueError, match="COMM_NULL: this process is not a member"):
        hvd.ProcessSet(some)
hvd.init(world, process_sets=[hvd.ProcessSet(some)] if rank else [])
assert process_set_table.ids_and_ranks() == {0: [0, 1, 2, 3], 1: [1, 2, 3]}
end()

# Ranks of a set count as those of the job do.
job = world.Split(0, -rank)
pair = hvd.ProcessSet(world.Split(rank // 2, rank))
hvd.init(job, process_sets=[pair])
assert hvd.rank() == 3 - rank and pair.ranks == ([2, 3] if rank < 2 else [0, 1]), pair
found = hvd.allgather(np.array([rank]), process_set=pair).tolist()
assert found == [rank // 2 * 2 + 1, rank // 2 * 2], found
end()
with pytest.raises(ValueError, match="processes that are not ranks of this job"):
    hvd.init(half, process_sets=[hvd.ProcessSet(world)])

# Lists have to agree.
with pytest.raises(ValueError, match="entry number 1 has mismatching values on different ranks: rank 0 and"):
    hvd.init(world, process_sets=[hvd.ProcessSet([rank]), hvd.ProcessSet(half)])
assert not hvd.is_initialized()
print("FINE", flush=True)
"""


@pytest.mark.parametrize("mpi", [ALL[0], *PYPI], ids=lambda mpi: mpi.name)
def test_communicators_that_differ_by_rank_make_the_process_sets_of_all(mpi: Mpi, tmp_path: Path) -> None:
    variables = mpi_support.environment(tmp_path, RUEDA_CPU_OPERATIONS="native")
    command = [*mpi.command(4), *mpi_support.write_script(tmp_path, SETS_OF_COMMUNICATORS)]
    assert mpi_support.run_well(command, mpi_support.with_mpi4py(variables, mpi)).count("FINE") == 4
