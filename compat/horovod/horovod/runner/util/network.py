"""IPv4 addresses of this machine."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterable

_SIOCGIFADDR = 0x8915
_NAME_BYTES = 15  # IFNAMSIZ without the final 0


def _addresses() -> dict[str, str]:
    """The first address of each interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:_NAME_BYTES])
            try:
                answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
            except OSError:  # it has none
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def get_local_host_addresses() -> list[str]:
    """Of all interfaces, the first of each."""
    return list(_addresses().values())


def get_local_intfs(nic: str | None = None) -> set[str]:
    """The interfaces with the address 127.0.0.1; or the given one, if it has an address."""
    found = _addresses()
    return {name for name, one in found.items() if (one == "127.0.0.1" if nic is None else name == nic)}


def resolve_host_address(host_name: str) -> str | None:
    """None if the name is unknown."""
    try:
        return socket.gethostbyname(host_name)
    except socket.gaierror:
        return None


def filter_local_addresses(all_host_names: Iterable[str]) -> list[str]:
    """The names that are not this machine's."""
    own = set(get_local_host_addresses())
    return [name for name in all_host_names if (resolve_host_address(name) or name) not in own]


def get_driver_ip(nics: Iterable[str]) -> str:
    """The address of the first of these interfaces that has one. Raises RuntimeError if there is none."""
    names, found = list(nics), _addresses()
    for name in names:
        if name in found:
            return found[name]
    raise RuntimeError(f"None of the interfaces {', '.join(names)} has an IPv4 address here.")
