"""The flags of horovodrun as a namespace, for programs that parse them and start the job by themselves. What
they mean, and whether values make sense, is the business of `rueda run`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

_WORD, _SWITCH, _PAIR = "word", "switch", "pair"
_NUMBER = int
_REAL = float
# Spellings, and how a flag takes its value. A pair is --x and --no-x.
_FLAGS: tuple[tuple[tuple[str, ...], Any], ...] = (
    (("-cb", "--check-build"), _SWITCH),
    (("-np", "--num-proc"), _NUMBER),
    (("-H", "--hosts"), _WORD),
    (("-hostfile", "--hostfile"), _WORD),
    (("--host-discovery-script",), _WORD),
    (("--min-np", "--min-num-proc"), _NUMBER),
    (("--max-np", "--max-num-proc"), _NUMBER),
    (("--slots-per-host", "--slots"), _NUMBER),
    (("--spares",), _NUMBER),
    (("--elastic-timeout",), _NUMBER),
    (("--reset-limit",), _NUMBER),
    (("-p", "--ssh-port"), _NUMBER),
    (("-i", "--ssh-identity-file"), _WORD),
    (("--network-interfaces", "--network-interface"), _WORD),
    (("--start-timeout",), _NUMBER),
    (("--disable-cache",), _SWITCH),
    (("--output-filename",), _WORD),
    (("--verbose",), _SWITCH),
    (("--config-file",), _WORD),
    (("--gloo",), _SWITCH),
    (("--mpi",), _SWITCH),
    (("--jsrun",), _SWITCH),
    (("--tcp",), _SWITCH),
    (("--mpi-args",), _WORD),
    (("--binding-args",), _WORD),
    (("--fusion-threshold-mb",), _REAL),
    (("--cycle-time-ms",), _REAL),
    (("--cache-capacity",), _NUMBER),
    (("--hierarchical-allreduce",), _PAIR),
    (("--hierarchical-allgather",), _PAIR),
    (("--torus-allreduce",), _PAIR),
    (("--autotune",), _PAIR),
    (("--autotune-log-file",), _WORD),
    (("--autotune-warmup-samples",), _NUMBER),
    (("--autotune-steps-per-sample",), _NUMBER),
    (("--autotune-bayes-opt-max-samples",), _NUMBER),
    (("--autotune-gaussian-process-noise",), _REAL),
    (("--timeline-filename",), _WORD),
    (("--timeline-mark-cycles",), _PAIR),
    (("--stall-check",), _PAIR),
    (("--stall-check-warning-time-seconds",), _NUMBER),
    (("--stall-check-shutdown-time-seconds",), _NUMBER),
    (("--mpi-threads-disable",), _PAIR),
    (("--num-nccl-streams",), _NUMBER),
    (("--thread-affinity",), _WORD),
    (("--gloo-timeout-seconds",), _NUMBER),
    (("--log-level",), _WORD),
    (("--log-with-timestamp",), _SWITCH),
    (("--log-without-timestamp",), _SWITCH),
    (("--prefix-output-with-timestamp", "-prefix-timestamp"), _SWITCH),
)
# Horovod's name of a flag, where it is another than that of its first long spelling.
_NAMES = {
    "--min-np": "min_num_proc",
    "--max-np": "max_num_proc",
    "--slots-per-host": "slots",
    "--network-interfaces": "nics",
    "--tcp": "tcp_flag",
    "--gloo": "use_gloo",
    "--mpi": "use_mpi",
    "--jsrun": "use_jsrun",
}


def _name_of(spellings: Sequence[str]) -> str:
    long = next(one for one in spellings if one.startswith("--"))
    return _NAMES.get(long, long[2:].replace("-", "_"))


def _parser() -> argparse.ArgumentParser:
    from horovod import __version__

    parser = argparse.ArgumentParser("horovodrun")
    parser.add_argument("-v", "--version", action="version", version=__version__)
    parser.add_argument("--blacklist-cooldown-range", dest="cooldown_range", type=int, nargs=2)
    for spellings, kind in _FLAGS:
        name = _name_of(spellings)
        if kind == _SWITCH:
            parser.add_argument(*spellings, dest=name, action="store_true")
        elif kind == _PAIR:
            parser.add_argument(*spellings, dest=name, action="store_true", default=None)
            parser.add_argument(f"--no-{spellings[0][2:]}", dest=name, action="store_false", default=None)
        else:
            parser.add_argument(*spellings, dest=name, type=str if kind == _WORD else kind)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags of sys.argv, or those given, by Horovod's names; what was not given is None or False.

    SystemExit for what is no flag. `rueda run` has more to say when the job starts.
    """
    found = _parser().parse_args(sys.argv[1:] if arguments is None else list(arguments))
    found.run_func = None
    return found


def words_of(args: argparse.Namespace) -> Iterator[str]:
    """The words of a command line for `rueda run` that mean these flags."""
    for spellings, kind in _FLAGS:
        value = getattr(args, _name_of(spellings), None)
        long = next(one for one in spellings if one.startswith("--"))
        if kind == _SWITCH:
            yield from [long] if value else []
        elif kind == _PAIR:
            yield from [] if value is None else [long if value else f"--no-{long[2:]}"]
        elif value is not None:
            yield from (long, value if isinstance(value, str) else f"{value}")
    if getattr(args, "cooldown_range", None):
        yield from ("--blacklist-cooldown-range", *map(str, args.cooldown_range))
    yield from args.command
