"""What rueda asks torch about GPUs. No other module does, so that tests can replace what is here."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch

from rueda.device import Stream

# The stream on which the calling thread enqueues, as a number. The private function takes a fraction of the
# time; the code that torch.compile generates calls it, too.
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def is_on_gpu(tensor: torch.Tensor) -> bool:
    """Whether the tensor's memory is that of a GPU which rueda may know."""
    return tensor.is_cuda


def index_of(tensor: torch.Tensor) -> int:
    """-1 for the CPU, else the index of the device."""
    return -1 if tensor.is_cpu else max(0, tensor.get_device())


def current_stream(index: int) -> int:
    """The handle of the stream on which the calling thread enqueues for this GPU."""
    handle = _raw_stream(index) if _raw_stream else torch.cuda.current_stream(index).cuda_stream
    return int(handle)


def stream_at(index: int) -> Stream:
    """The stream on which the calling thread enqueues for this GPU."""
    return Stream(index, current_stream(index), partial(current_stream, index))


_side_streams: dict[int, Any] = {}


def side_stream(index: int) -> AbstractContextManager[Any]:
    """Within it, the calling thread enqueues on a stream that no other part of the program uses."""
    stream = _side_streams.get(index)
    if stream is None:
        stream = _side_streams[index] = torch.cuda.Stream(index)
    return torch.cuda.stream(stream)


def future(index: int) -> torch.futures.Future[Any]:
    """A future whose value is ready on this GPU when what was enqueued before it was set has run."""
    return torch.futures.Future(devices=[torch.device("cuda", index)])
