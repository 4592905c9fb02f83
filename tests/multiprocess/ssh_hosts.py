"""Hosts on loopback addresses that real ssh reaches, with throw-away keys."""

import contextlib
import getpass
import os
import pathlib
import shutil
import socket
import subprocess
import time

from ports import free_port

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
IS_INSTALLED = os.path.exists(SSHD) and shutil.which("ssh") is not None


def wait_for_port(address, port):
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection((address, port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline, f"sshd does not answer on {address}:{port}"
            time.sleep(0.02)


@contextlib.contextmanager
def ssh_hosts(base, count):
    """One sshd each for h1, h2, …; gives the path of a client configuration that knows them, and nowhere."""
    base.chmod(0o700)
    with contextlib.suppress(PermissionError):  # only root's sshd needs it
        pathlib.Path("/run/sshd").mkdir(parents=True, exist_ok=True)
    for name in ("user", "host"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", base / name], check=True)
    (base / "authorized").write_text((base / "user.pub").read_text())
    servers, client = [], []
    nowhere = f"127.0.0.{count + 2}"
    try:
        for index in range(1, count + 1):
            address = f"127.0.0.{index + 1}"
            port = free_port(address)
            config = base / f"sshd{index}"
            config.write_text(
                f"ListenAddress {address}\nPort {port}\nHostKey {base}/host\nPidFile {base}/pid{index}\n"
                f"AuthorizedKeysFile {base}/authorized\nStrictModes no\nPasswordAuthentication no\n"
                "PermitRootLogin yes\nUsePAM no\nMaxStartups 100\n"
            )
            servers.append(subprocess.Popen([SSHD, "-D", "-f", config, "-E", base / f"log{index}"]))
            wait_for_port(address, port)
            client.append(f"Host h{index}\n  HostName {address}\n  Port {port}\n")
        client.append(f"Host nowhere\n  HostName {nowhere}\n  Port {free_port(nowhere)}\n")
        client.append(
            f"Host *\n  User {getpass.getuser()}\n  IdentityFile {base}/user\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {base}/known\n"
        )
        (base / "client").write_text("".join(client))
        yield base / "client"
    finally:
        for server in servers:
            server.terminate()
            server.wait(10)
