"""Empty tensors that were fused before anything else had been packed ended the job: the buffer for them, of
no bytes, was taken for a lack of memory. It took two of them ready at once, so it came and went.
"""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "multiprocess"))

from harness import on_every_rank
from nursery import ForkedWorld

import horovod.torch as hvd


@pytest.fixture(scope="module", params=["tcp", "shm,tcp"])
def world(request):
    """Two ranks that have done nothing yet."""
    made = ForkedWorld(2, request.param)
    yield made
    made.stop()


@on_every_rank
def test_a_group_of_empty_tensors():
    reduced = hvd.grouped_allreduce([torch.empty(0), torch.empty(0, 3)], name="none", op=hvd.Sum)
    assert [tuple(one.shape) for one in reduced] == [(0,), (0, 3)]
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [2, 2]
