"""What every part of the GPU suite begins with: this rank, its device, and how a part says what it found.

With RUEDA_GPU_STAND_IN=1 there is no GPU: tensors of the CPU stand in (tests/multiprocess/torch_stand_in.py).
Parts then run with small sizes, and what they measure means nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, List, NoReturn, Optional

IS_STAND_IN = os.environ.get("RUEDA_GPU_STAND_IN") == "1"
IS_CHECKED = os.environ.get("RUEDA_GPU_CHECKED") == "1"  # under compute-sanitizer, which is slow
RANK, SIZE = int(os.environ["RUEDA_RANK"]), int(os.environ["RUEDA_SIZE"])


def say(**facts: Any) -> None:
    """Adds facts to the result of this part. Only those of rank 0 count."""
    if RANK == 0:
        print("RESULT " + json.dumps(facts), flush=True)


def skip(why: str) -> NoReturn:
    """Ends this part, which cannot run here."""
    say(skipped=why)
    sys.exit(0)


if IS_STAND_IN:
    sys.path.append(str(Path(__file__).resolve().parents[2] / "multiprocess"))
    import torch_stand_in

    _driver = torch_stand_in.install()

try:
    import torch
except ImportError as error:
    skip(f"torch cannot be imported: {error}")

from rueda import _core  # noqa: E402

index = 0 if IS_STAND_IN else RANK % max(1, torch.cuda.device_count())
device = torch.device("cpu") if IS_STAND_IN else torch.device("cuda", index)
if not IS_STAND_IN:
    torch.cuda.set_device(device)

total = SIZE * (SIZE + 1) / 2  # of the numbers that the ranks have
waits_of_host: List[int] = []  # operations for which the host has waited until their end
_wait_of_core = _core.wait


def _counted_wait(engine_handle: int, timeout_s: float) -> int:
    waits_of_host.append(engine_handle)
    return int(_wait_of_core(engine_handle, timeout_s))


_core.wait = _counted_wait


def engine_cpu_ms() -> float:
    """The processor time of the engine's own thread until now."""
    spent = 0.0
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text() == "rueda-engine\n":
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            spent += (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")
    return spent


# Long enough for steps to be learned as a plan; but ranks that take turns on the GPU are slow.
WARM_UPS = 5 if SIZE == 1 else 3
# What is timed over NCCL, by rueda and without it: one sum at a time, and a series of sums, of so many bytes.
# All of them are out of place: in place, NCCL does nothing for a single rank.
TIMED_BYTES = (64 << 20, 4) if not IS_STAND_IN else (4096, 4)


def series_length(size_bytes: int) -> int:
    """How many sums a series has. For one rank a sum is a copy, so a short series would show its start."""
    if IS_STAND_IN:
        return 3
    return 100 if size_bytes <= 4096 else 64 if SIZE == 1 else 4


def time_sums(size_bytes: int, one: Callable[[], Any], series: Callable[[], Any], stream: int) -> None:
    """Says how long one sum takes, and each of a series."""
    is_small = size_bytes <= 4096
    one_s = seconds_until_result(one, 200 if is_small else 20 if SIZE == 1 else 6, stream)
    series_s = seconds_until_result(series, 5 if SIZE == 1 else 3, stream) / series_length(size_bytes)
    say(
        **{f"one_{size_bytes}_us": round(one_s * 1e6, 1), f"series_{size_bytes}_us": round(series_s * 1e6, 1)}
    )


def mine(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor that has the number of this rank, counted from 1, everywhere."""
    return torch.full(shape or (5,), float(RANK + 1), dtype=dtype, device=device)


def current_stream() -> int:
    """The stream of torch, or one of the stand-in's."""
    return _driver.stream() if IS_STAND_IN else torch.cuda.current_stream().cuda_stream


def synchronize(stream: int = 0) -> None:
    """Waits until the GPU has done all that was enqueued; the stand-in, what is on this stream of its own."""
    if not IS_STAND_IN:
        torch.cuda.synchronize()
    elif stream:
        _driver.synchronize(stream)


def seconds_on_gpu(work: Callable[[], Any], repeat: int) -> float:
    """Mean time of one call, from the first start to the last end on the GPU. Warms up first."""
    repeat = 2 if IS_STAND_IN else repeat
    for _ in range(max(1, repeat // 4)):
        work()
    synchronize()
    began = time.perf_counter()
    for _ in range(repeat):
        work()
    synchronize()
    return (time.perf_counter() - began) / repeat


def seconds_until_result(work: Callable[[], Any], repeat: int, stream: int) -> float:
    """Median time of work() until the host knows that the GPU has the result: work() enqueues on the current
    stream, or lets it wait, and then the host waits for that stream. Warms up first.

    stream: the current one of the stand-in.
    """
    repeat = 2 if IS_STAND_IN else repeat
    samples: List[float] = []
    for number in range(WARM_UPS + repeat):
        began = time.perf_counter()
        kept = work()  # until the end, so that no memory is used twice meanwhile
        if IS_STAND_IN:
            _driver.synchronize(stream)
        else:
            torch.cuda.current_stream().synchronize()
        if number >= WARM_UPS:
            samples.append(time.perf_counter() - began)
        del kept
    return sorted(samples)[len(samples) // 2]


_AHEAD_CYCLES = 40_000_000  # about 20 ms in which the host enqueues what is timed


def seconds_between_events(work: Callable[[], Any], repeat: int) -> Optional[float]:
    """Median time of one call on the GPU, between an event before it and one after it.

    The GPU spins first, so that all of the call is enqueued when it begins, and no time of the host counts.
    None if the host was never that far ahead, for example because the call waits for the GPU. Stand-in: the
    host's time.
    """
    if IS_STAND_IN:
        return seconds_on_gpu(work, repeat)
    samples: List[float] = []
    for number in range(repeat + 5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(_AHEAD_CYCLES)
        begin.record()
        work()
        end.record()
        is_ahead = not begin.query()
        end.synchronize()
        if number >= 5 and is_ahead:
            samples.append(begin.elapsed_time(end) / 1e3)
    return sorted(samples)[len(samples) // 2] if samples else None


def require_engine() -> None:
    """Fails unless the engine takes memory of the device."""
    from rueda import device as memory

    support = memory.support()
    say(backend=support.backend)
    wanted = os.environ.get("RUEDA_GPU_OPERATIONS", "")
    assert support.is_taken, f"the engine takes no memory of GPUs: {support.why}"
    assert wanted in ("", support.backend), f"asked for {wanted}, but the engine has {support.backend}"


def run_checks(namespace: Dict[str, Any]) -> None:
    """Runs every function of a part whose name begins with `check_`. The first that fails ends the part: the
    state of the other ranks is unknown then.
    """
    done: List[str] = []
    for name, check in namespace.items():
        if name.startswith("check_"):
            try:
                check()
            except BaseException:
                print(f"---- {name} failed on rank {RANK} ----", flush=True)
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)  # without a shutdown, which would wait for the others
            done.append(name.removeprefix("check_"))
    say(checks=done)
