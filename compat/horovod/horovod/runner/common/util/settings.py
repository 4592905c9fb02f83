"""What a job is started with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class BaseSettings:
    """Of every job. Fields that rueda has no use for are kept as they are given."""

    num_proc: int | None = None
    verbose: int = 0
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    extra_mpi_args: str | None = None
    tcp_flag: bool | None = None
    binding_args: str | None = None
    key: bytes | None = None
    start_timeout: Any = None
    output_filename: str | None = None
    run_func_mode: bool | None = None
    nics: Any = None
    elastic: bool = False
    prefix_output_with_timestamp: bool = False


@dataclass
class Settings(BaseSettings):
    """Of a job on a list of hosts. hosts: "a:2,b:2"."""

    hosts: str | None = None
    num_hosts: int | None = None
    executable: str | None = None
