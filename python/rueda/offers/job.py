"""An elastic job on the slots that offers bring: the launcher on the driver, with what it needs of them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, TextIO

from rueda import outcomes
from rueda.offers.switchboard import Switchboard
from rueda.placement import seconds
from rueda.run import Launch, run_launcher

# The Python, packages and folder are those of the offer's machine, which may not have the driver's.
_COMMAND = 'cd "$RUEDA_OFFER_FOLDER" && exec "$RUEDA_OFFER_PYTHON" -c "$1"'
_WORKER = (
    "import os, sys; sys.path.append(os.environ['RUEDA_OFFER_PACKAGES']); "
    "from rueda._run_worker import main; sys.exit(main())"
)
ALL_SLOTS = 1 << 16  # as the most ranks of a job: whatever is offered
# What the launcher itself needs; other machines do not get it.
_OWN = ("HOME", "USER", "LOGNAME", "TMPDIR", "XDG_RUNTIME_DIR")


@dataclass(frozen=True)
class Size:
    """How many ranks an elastic job has. first: None means `least`; most: None means `first`."""

    least: int = 1
    first: Optional[int] = None
    most: Optional[int] = None
    spares: int = 0
    reset_limit: Optional[int] = None
    timeout_s: float = 600.0

    def __post_init__(self) -> None:
        for name, value, bound in (
            ("min_num_proc", self.least, 1),
            ("num_proc", self.begins_with, self.least),
            ("max_num_proc", self.ends_with, self.begins_with),
            ("spares", self.spares, 0),
            ("reset_limit", self.reset_limit or 0, 0),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < bound:
                raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {bound}.")
        seconds("elastic_timeout", self.timeout_s)

    @property
    def begins_with(self) -> int:
        """Ranks of the first view."""
        return self.least if self.first is None else self.first

    @property
    def ends_with(self) -> int:
        """The most ranks that the job ever has."""
        return self.begins_with if self.most is None else self.most

    @property
    def slots(self) -> int:
        """How many slots it can use."""
        return self.ends_with + self.spares


def options(size: Size, switchboard: Switchboard, start_timeout_s: float) -> list[str]:
    """The options of `rueda run` for such a job."""
    given: dict[str, Any] = {
        "--num-proc": size.begins_with,
        "--min-np": size.least,
        "--spares": size.spares,
        "--elastic-timeout": size.timeout_s,
        "--start-timeout": start_timeout_s,
        "--host-discovery-script": f"cat {shlex.quote(str(switchboard.hosts_file))}",
        "--agent-program": switchboard.agent_program,
    }
    if size.ends_with < ALL_SLOTS:
        given["--max-np"] = size.ends_with
    if size.reset_limit is not None:
        given["--reset-limit"] = size.reset_limit
    return [str(word) for pair in given.items() for word in pair]


@dataclass(frozen=True)
class Surroundings:
    """What a job has to do with its driver."""

    env: Mapping[str, str]  # variables of the ranks
    attend: Optional[Callable[[], None]] = None  # called a few times a second; what it raises ends the job
    start_timeout_s: float = 120.0  # for the agents of the first hosts
    out: Optional[TextIO] = None  # for the lines of ranks; None: those of this process
    err: Optional[TextIO] = None
    more: Sequence[str] = ()  # options of `rueda run`


def run(call: bytes, size: Size, switchboard: Switchboard, around: Surroundings) -> list[Any]:
    """The results of the members of the last view, in the order of their ranks.

    call: what `rueda.run.pickle_call` made. Raises RuntimeError if the job failed.
    """
    own = {name: os.environ[name] for name in _OWN if name in os.environ}
    command = ["/bin/sh", "-c", _COMMAND, "sh", _WORKER]
    launch = Launch(
        command, {**own, **around.env}, outcomes.of_last_view, "/", around.attend, around.out, around.err
    )
    return run_launcher(call, [*options(size, switchboard, around.start_timeout_s), *around.more], launch)
