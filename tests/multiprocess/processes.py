"""What /proc says of processes that tests have started."""

from pathlib import Path
from typing import List, Optional


def state_of(pid: int) -> Optional[str]:
    """The state letter, or None when it is gone. Orphans stay zombies for a while, which `kill -0` counts
    as alive."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_alive(pid: int) -> bool:
    """Neither gone nor a zombie."""
    return state_of(pid) not in (None, "Z", "X")


def children_of(pid: int) -> List[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
