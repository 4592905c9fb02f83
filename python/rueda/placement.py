"""Which rank each process of a cluster manager (Spark, Ray) becomes, and which variables it finds. Values in,
values out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Hello:
    """What a task tells the driver about itself."""

    partition: int  # the number of the task
    host: str  # as the cluster manager knows it, so that other tasks reach it there
    host_key: str  # equal for tasks that share a kernel and a network namespace
    pid: int  # of the process that says it
    ports: tuple[int, int, int]  # reserved for the store, for MASTER_PORT and for TF_CONFIG
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """The rank of one task, and where it stands among the others."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    host: str


def check_variables(env: Mapping[Any, Any]) -> None:
    """Raises TypeError or ValueError, by name, for what cannot be variables of a process."""
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"env[{name!r}] is {value!r}; names and values of variables are strings.")
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"env[{name!r}] cannot be a variable: no = in its name, and no zero byte.")


def seconds(name: str, value: Any) -> float:
    """A time to wait, from an argument or a variable. ValueError if it is not a number above 0."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not 0 < found < math.inf:
        raise ValueError(f"{name} is {value!r}; give a number of seconds above 0.")
    return found


def place(hellos: Sequence[Hello]) -> dict[int, Place]:
    """The place of each partition. Ranks of one host are adjacent, in the order of their partitions; hosts
    come in the order of their first partition.
    """
    hosts: dict[str, list[Hello]] = {}
    for hello in sorted(hellos, key=lambda one: one.partition):
        hosts.setdefault(hello.host_key, []).append(hello)
    places: dict[int, Place] = {}
    for number, members in enumerate(hosts.values()):
        for local_rank, hello in enumerate(members):
            peers = [len(others) > local_rank for others in hosts.values()]  # hosts with this local rank
            places[hello.partition] = Place(
                rank=len(places),
                size=len(hellos),
                local_rank=local_rank,
                local_size=len(members),
                cross_rank=sum(peers[:number]),
                cross_size=sum(peers),
                host=members[0].host,
            )
    return places


def _numbers(place_of_rank: Place) -> dict[str, str]:
    values = {
        "RANK": place_of_rank.rank,
        "SIZE": place_of_rank.size,
        "LOCAL_RANK": place_of_rank.local_rank,
        "LOCAL_SIZE": place_of_rank.local_size,
        "CROSS_RANK": place_of_rank.cross_rank,
        "CROSS_SIZE": place_of_rank.cross_size,
        "HOSTNAME": place_of_rank.host,
    }
    return {
        f"{prefix}_{name}": str(value) for prefix in ("RUEDA", "HOROVOD") for name, value in values.items()
    }


def url_host(host: str) -> str:
    """A host as URLs and host:port pairs have it: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def tf_config(hellos: Sequence[Hello], places: Mapping[int, Place], rank: int) -> str:
    """The variable that tf.distribute reads: all ranks are workers."""
    by_rank = sorted(hellos, key=lambda hello: places[hello.partition].rank)
    workers = [f"{url_host(hello.host)}:{hello.ports[2]}" for hello in by_rank]
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})


def environment(
    hellos: Sequence[Hello], places: Mapping[int, Place], hello: Hello, job: str, with_tf_config: bool
) -> dict[str, str]:
    """The variables of one rank that depend on where it runs. Rank 0's host serves the store."""
    own = places[hello.partition]
    first = next(one for one in hellos if places[one.partition].rank == 0)
    variables = {
        **_numbers(own),
        "RANK": str(own.rank),
        "WORLD_SIZE": str(own.size),
        "LOCAL_RANK": str(own.local_rank),
        "LOCAL_WORLD_SIZE": str(own.local_size),
        "RUEDA_JOB": job,
        "RUEDA_STORE": f"tcp://{url_host(first.host)}:{first.ports[0]}",
        "MASTER_ADDR": first.host,
        "MASTER_PORT": str(first.ports[1]),
        "PYTHONUNBUFFERED": "1",
    }
    if with_tf_config:
        variables["TF_CONFIG"] = tf_config(hellos, places, own.rank)
    return variables


# What belongs to one rank or one job; a rank of another job may start this one.
_OWN = (
    "_RANK",
    "_SIZE",
    "_HOSTNAME",
    "_JOB",
    "_STORE",
    "_STORE_SERVED",
    "_SECRET_FILE",
    "_STAGE_DIR",
    "_BIN",
)


def forwarded(driver: Mapping[str, str]) -> dict[str, str]:
    """The settings of the driver's environment that its ranks get as well: RUEDA_* and HOROVOD_*."""
    return {
        name: value
        for name, value in driver.items()
        if name.startswith(("RUEDA_", "HOROVOD_"))
        and not name.endswith(_OWN)
        and name not in ("RUEDA_LIBRARY", "RUEDA_SPARK_GPUS")
    }
