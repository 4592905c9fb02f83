"""The process between a Spark task and its rank: it starts the rank and lets nothing of it survive the task.

    python -I -S keeper.py PYTHON ARGUMENT...

stdin comes from the task: "T" asks the rank to end (SIGTERM), "A" all that it has started as well, end of
file kills them. stdout goes to the task, in lines: "started PID", "ended STATUS" (as waitpid has it). The
rank's own stdout and stderr are the descriptors that RUEDA_KEEPER_FDS names.

It becomes two processes, a guardian and the rank's parent. Both are subreapers, so the rank's descendants
stay below them even if they have made a session for themselves. If one of the two is killed, the other
kills them; the rank itself gets SIGKILL from the kernel when its parent ends. The last of the two removes the
socket of a killed rank.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import select
import signal
import sys
import time

_DEAD_SOCKETS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "dead_sockets.py")
_SET_DEATH_SIGNAL = 1
_SET_SUBREAPER = 36
_KILL_SECONDS = 3.0


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _processes() -> dict[int, tuple[int, bool]]:
    """(parent, is alive) of every process that can be seen; those that have ended may still be parents."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except OSError:  # it has just ended
                continue
            found[int(entry)] = (int(parent), state not in (b"Z", b"X"))
    return found


def descendants(ancestor: int) -> list[int]:
    """All living processes below this one."""
    processes = _processes()
    known = {ancestor}
    while more := {pid for pid, (parent, _) in processes.items() if parent in known} - known:
        known |= more
    return sorted(pid for pid in known - {ancestor} if processes[pid][1])


def kill_descendants() -> None:
    """Kills all there are, and those they have started meanwhile.

    Processes change their parent while their old one ends, and a look at /proc takes time. So only several
    looks that find nothing count.
    """
    deadline = time.monotonic() + _KILL_SECONDS
    quiet = 0
    while quiet < 3 and time.monotonic() < deadline:
        left = descendants(os.getpid())
        quiet = 0 if left else quiet + 1
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def clean_up() -> None:
    """Kills what the rank has left, and removes the socket of a rank that was killed."""
    kill_descendants()
    runpy.run_path(_DEAD_SOCKETS)["remove_dead_sockets"]()


def _become_rank(command: list[str], keeper: int, fds: tuple[int, int]) -> None:
    """In the child: never returns."""
    try:
        _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)
        for number in range(1, signal.NSIG):
            with contextlib.suppress(OSError, ValueError):  # some cannot be set
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(fds[0], 1)
        os.dup2(fds[1], 2)
        for fd in fds:
            os.close(fd)
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"rueda: {command[0]} cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _watch(rank: int, child_ended: int) -> int | None:
    """The wait status of the rank; None if the task is gone first."""
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    poll.register(child_ended, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if child_ended in ready:
            os.read(child_ended, 512)
            # Orphans of the rank end here too: only the rank counts.
            while True:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    return None
                if pid == rank:
                    return status
                if pid == 0:
                    break
        if 0 in ready:
            request = os.read(0, 1)
            if not request:
                return None
            for pid in descendants(os.getpid()) if request == b"A" else [rank]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)


def _guard() -> None:
    """Returns in the rank's parent. The guardian waits for it, kills what it left, and ends."""
    guardian = os.getpid()
    parent = os.fork()
    if parent != 0:
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.closerange(3, 1024)  # the rank's pipes must end with the rank
        os.waitpid(parent, 0)
        clean_up()
        os._exit(0)

    def abandoned(*_: object) -> None:
        clean_up()
        os._exit(1)

    signal.signal(signal.SIGUSR1, abandoned)
    _prctl(_SET_SUBREAPER, 1)
    _prctl(_SET_DEATH_SIGNAL, signal.SIGUSR1)
    if os.getppid() != guardian:
        os._exit(1)


def main() -> int:
    out, err = (int(text) for text in os.environ.pop("RUEDA_KEEPER_FDS").split(","))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the task decides, by stdin
    _prctl(_SET_SUBREAPER, 1)
    _guard()
    child_ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    keeper = os.getpid()
    # A request to end that comes before the rank has its own signals waits until then. Else it were ignored.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    rank = os.fork()
    if rank == 0:
        signal.set_wakeup_fd(-1)
        _become_rank(sys.argv[1:], keeper, (out, err))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    for fd in (out, err):
        os.close(fd)
    os.write(1, f"started {rank}\n".encode())
    status = _watch(rank, child_ended)
    kill_descendants()
    if status is not None:
        with contextlib.suppress(BrokenPipeError):
            os.write(1, f"ended {status}\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
