"""The name of the backend, and what keeps the names of its operations apart."""

from __future__ import annotations

from typing import NamedTuple

NAME = "rueda"

# How many default groups this process has made or joined. torch.distributed numbers the groups in each from
# 0, and a name must not recur while an old operation with that name may be open. This is not an epoch: the
# engine goes on when a default group is destroyed, and may stop and start again during one.
default_groups = 0


class Place(NamedTuple):
    """Which operation of a process group it is. The number grows from one to the next."""

    word: str
    number: int
    rest: str = ""

    def __str__(self) -> str:
        return f"{self.word} {self.number}{self.rest}"
