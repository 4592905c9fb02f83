"""Record files of a job larger than this machine runs: copies of a small one's, as if other ranks wrote them.

The format is that of src/rueda/trace/record_format.h: slots of 32 bytes.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Callable, Iterator

SLOT = 32
NAME, EPOCH = 3, 4  # kinds of slots
HEADER = 8  # of a name: kind, detail, bytes of text, id


def slots(record: bytes) -> Iterator[bytes]:
    """The slots of a record; the slots of a name are one."""
    at = 0
    while at + SLOT <= len(record):
        size = SLOT
        if record[at] == NAME:
            text = int.from_bytes(record[at + 2 : at + 4], "little")
            size = (HEADER + text + SLOT - 1) // SLOT * SLOT
        yield record[at : at + size]
        at += size


def name_slots(number: int, text: bytes) -> bytes:
    """A name, as many slots long as it needs."""
    header = struct.pack("<BBHI", NAME, 0, len(text), number)
    return (header + text).ljust((HEADER + len(text) + SLOT - 1) // SLOT * SLOT, b"\0")


def copied(record: bytes, rank: int, size: int, host: str) -> bytes:
    """The record of one segment as if that rank of a larger job had written it."""
    parts = list(slots(record))
    (host_id,) = {struct.unpack_from("<I", part, 4)[0] for part in parts if part[0] == EPOCH}
    out = []
    for part in parts:
        if part[0] == EPOCH:
            part = part[:16] + struct.pack("<II", rank, size) + part[24:]
        elif part[0] == NAME and struct.unpack_from("<I", part, 4)[0] == host_id:
            part = name_slots(host_id, host.encode())
        out.append(part)
    return b"".join(out)


def enlarge(small: Path, large: Path, size: int, host_of: Callable[[int], str]) -> None:
    """Writes `large`.rank<N>.rec for `size` ranks from the two files of `small`."""
    records = [Path(f"{small}.rank{rank}.rec").read_bytes() for rank in range(2)]
    for rank in range(size):
        record = copied(records[rank % 2], rank, size, host_of(rank))
        Path(f"{large}.rank{rank}.rec").write_bytes(record)
