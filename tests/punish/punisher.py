"""Starts an elastic job, does faults to it from a seed, and compares its states with those of a job that
nobody disturbs, bit for bit.

    python tests/punish/punisher.py --faults 1000 --seed 7              # one host
    python tests/punish/punisher.py --faults 300 --seed 7 --hosts 2     # network name spaces, as root
    python tests/punish/punisher.py --profile churn --ranks 10 --faults 200
    python tests/punish/punisher.py --kinds kill --pause 29 29 --faults 20
    python tests/punish/punisher.py --members --hosts 3 --ranks 6       # a job without a launcher
    python tests/punish/punisher.py --kinds kill launcher --faults 3    # its launcher is killed in the end

Ends with 0 if no bit was wrong and nothing hung. The folder of the run (--folder) then has report.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import replay
from faults import KINDS, Fault, Profile, ends_of, profile_of, program, usable
from history import Broken, Commit, history_of, read
from job import Hosts, Job, Plan, costs_of, is_alive
from launched_job import SLOTS, LaunchedJob
from launcher_end import Ending, kill_launcher, resume
from measures import Outcome, Struck, goodput_of, outcome_of, sentence_of, table_of, times_of
from members_job import MembersJob
from scene import Process
from strikes import RATE, Strikes

HANG_S = 120.0  # nothing that a job does after a fault takes so long on a busy machine
POLL_S = 0.05


class Hang(Exception):
    """A job did not come to what it had to come to."""


class Ended(Exception):
    """A job has ended before it was told to."""


class Punisher:
    """Punishes one job. One thread."""

    def __init__(self, job: Job, profile: Profile, say: Callable[[str], None], keeps: bool = False) -> None:
        self._job, self._profile, self._say, self._keeps = job, profile, say, keeps
        self._strikes = Strikes(job)
        self._open: list[Struck] = []
        self.struck: list[Struck] = []
        self.outcomes: list[Outcome] = []
        self.costs: list[dict] = []

    def run(self, faults: Iterator[Fault], end_at: float) -> None:
        """All faults, or those that there is time for. Raises Hang or Ended."""
        self._await("the first view", lambda: len(self._members()) == self._job.plan.ranks)
        self._note_costs()
        for fault in faults:
            if time.monotonic() > end_at:
                break
            self._strike(fault)
            if self._profile.awaits_recovery:
                self._await(
                    f"a commit after fault {fault.number} ({fault.kind})", lambda: not self._unsettled()
                )
        self._await("a commit after the last fault", lambda: not self._unsettled())
        self._note_costs()

    def finish(self) -> None:
        """Ends the job, which must end well."""
        self._job.stop_file.touch()
        with contextlib.suppress(Ended):
            self._await("the end of the job", lambda: False)
        if self._job.exit_code() != 0:
            raise Ended(f"the job ended with {self._job.exit_code()}")

    def _strike(self, fault: Fault) -> None:
        kind = KINDS[fault.kind]
        self._sleep(fault.pause)
        self._await("the end of those that are to leave", lambda: not self._is_one_leaving())
        self._job.prepare()
        members: list[Process] = []  # as one look saw them: at the next one they may be others, or none

        def is_enough() -> bool:
            members[:] = self._staying()
            return bool(members) and self._job.can_bear(members, kind)

        self._await(f"enough members for fault {fault.number} ({fault.kind})", is_enough)
        scene = self._job.records.scene
        view, known, began = scene.view, (len(scene.commits), len(scene.losses)), time.monotonic()
        oldest = min(members, key=lambda one: one.started)
        blow = self._strikes.do(fault, [one for one in members if not (self._keeps and one is oldest)])
        self.struck.append(
            Struck(fault.number, fault.kind, began, blow.over, view, known, blow.victims, blow.changes_view)
        )
        self._open.append(self.struck[-1])
        self._say(f"fault {fault.number}: {kind.says}; view {view} of {len(members)} ranks")

    def _unsettled(self) -> list[Struck]:
        """The faults that the job has not got over yet."""
        scene = self._job.records.read()
        found = [(struck, outcome_of(struck, scene)) for struck in self._open]
        settled = [outcome for _, outcome in found if outcome is not None]
        self.outcomes += settled
        with open(self._job.plan.folder / "faults.jsonl", "a", encoding="ascii") as file:
            file.writelines(json.dumps(asdict(one)) + "\n" for one in settled)
        self._open = [struck for struck, outcome in found if outcome is None]
        return self._open

    def _is_one_leaving(self) -> bool:
        processes = self._job.records.read().processes.values()
        return any(self._job.is_leaving(one) and is_alive(one) for one in processes)

    def _staying(self) -> list[Process]:
        """Members that have not been told to go: the state is safe while one of them is left."""
        return [one for one in self._members() if not self._job.is_leaving(one)]

    def _members(self) -> list[Process]:
        return self._job.records.read().members(is_alive)

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._job.tend()
            self._unsettled()
            time.sleep(min(left, POLL_S))

    def _await(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HANG_S
        while not is_so():
            self._job.tend()
            if (code := self._job.exit_code()) is not None:
                raise Ended(f"the job ended with {code} while it was to come to {what}")
            if time.monotonic() > deadline:
                raise Hang(f"{HANG_S:.0f} s have not brought {what}")
            time.sleep(POLL_S)

    def _note_costs(self) -> None:
        """Of the launcher, and of the oldest rank."""
        oldest = min(self._members(), key=lambda one: one.started, default=None)
        noted: dict = {"view": self._job.records.scene.view}
        if launcher := self._job.launcher():
            noted["launcher"] = costs_of(launcher)
        if oldest:
            noted[f"rank {oldest.uid}"] = costs_of(oldest.pid)
        self.costs.append(noted)


def stacks_of(job: Job) -> str:
    """What the processes of a job that hangs do. For whoever looks for the cause."""
    rueda = os.environ.get("RUEDA_BIN", "rueda")
    found = []
    for process in job.records.scene.processes.values():
        if is_alive(process):
            words = [rueda, "stacks", "--native", str(process.pid)]
            with contextlib.suppress(subprocess.TimeoutExpired):
                done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
                found.append(f"{process}\n{done.stdout}{done.stderr}")
    return "\n".join(found)


def times_of_steps(records: list[dict], history: list[Commit]) -> dict[int, float]:
    """When each step that was kept was first committed."""
    views = {one.step: one.view for one in history}
    times: dict[int, float] = {}
    for one in records:
        if "what" not in one and views.get(one["step"]) == one["view"]:
            times[one["step"]] = min(one["t"], times.get(one["step"], one["t"]))
    return times


def judge(job: Job, punisher: Punisher, hangs: list[str], seed: int, ending: Ending | None) -> dict:
    """The report. Compares the bits, however the job has ended."""
    records = read(job.log)
    report = {
        "seed": seed,
        "ranks": job.plan.ranks,
        "hosts": job.host_names,
        "kinds": table_of(punisher.struck, punisher.outcomes),
        "times": times_of(punisher.outcomes),
        "views": job.records.scene.view,
        "commits": 0,
        "goodput": {},
        "costs": punisher.costs,
        "hangs": hangs,
        "launcher_end": ending and asdict(ending),
        "wrong_bits": 0,
        "slowest": [
            asdict(one) for one in sorted(punisher.outcomes, key=lambda one: -(one.recovery or 0))[:5]
        ],
    }
    if isinstance(job, MembersJob):
        victims = set().union(*(one.victims for one in punisher.struck))
        report["ended_besides"] = job.ended_besides(victims)
    try:
        history = history_of(records)
        report["commits"] = len(history)
        report["goodput"] = goodput_of(history, times_of_steps(records, history), job.plan.ranks)
        report["verdict"] = replay.compare(job.log, job.plan.folder, job.plan.seed)
        if ending and ending.checkpoint >= 0:
            history = resume(job, ending.checkpoint)
            verdict = replay.compare_history(history, job.plan.folder, job.plan.seed)
            report["verdict"] += f"; with the checkpoint of step {ending.checkpoint}: {verdict}"
    except Broken as broken:
        report["wrong_bits"], report["verdict"] = 1, str(broken)
    return report


@contextlib.contextmanager
def hosts_of(count: int, folder: Path) -> Iterator[Hosts | None]:
    """None: the ranks run on this machine."""
    if count == 0:
        yield None
        return
    from virtual_hosts import virtual_hosts

    (folder / "net").mkdir()
    with virtual_hosts(folder / "net", [f"h{i}" for i in range(count)], RATE) as hosts:
        yield hosts


def job_of(options: argparse.Namespace, plan: Plan, hosts: Hosts | None) -> Job:
    """Not started yet."""
    if options.members:
        return MembersJob(plan, hosts)
    return LaunchedJob(plan, hosts, options.ranks if options.profile == "churn" else SLOTS)


def punish(options: argparse.Namespace, folder: Path) -> dict:
    """One run. Its report is in the folder, too."""
    plan = Plan(folder, options.ranks, options.least, options.seed, options.pace, options.timeline)
    kinds, kills_launcher = ends_of(options.kinds)
    profile = profile_of(options.profile, options.pause and tuple(options.pause), kinds)
    hangs: list[str] = []

    def say(text: str) -> None:
        print(f"punisher: {text}", flush=True)

    ending = None
    with hosts_of(options.hosts, folder) as hosts, job_of(options, plan, hosts) as job:
        weights = usable(profile.weights, hosts is not None, job.disk is not None, job.has_launcher)
        profile = Profile(weights, profile.pause, profile.awaits_recovery)
        punisher = Punisher(job, profile, say, options.keep)
        try:
            punisher.run(program(options.seed, options.faults, profile), time.monotonic() + options.limit)
            if kills_launcher:
                ending = kill_launcher(job)
                hangs += ending.faults
            else:
                punisher.finish()
        except (Hang, Ended) as error:
            hangs.append(str(error))
            say(str(error))
            (folder / "stacks.txt").write_text(stacks_of(job))
        report = judge(job, punisher, hangs, options.seed, ending)
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    print(sentence_of(report), flush=True)
    return report


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Ends with a sentence where the options ask for a job that cannot survive what is done to it."""
    if not options.members:
        return
    if options.hosts in (1, 2) or options.ranks < max(4, 2 * options.hosts):
        parser.error("--members: give no hosts and 4 ranks, or 3 hosts and twice as many ranks, or more")
    if options.hosts and options.ranks % options.hosts:
        parser.error("--members: the ranks are spread evenly over the hosts; give a multiple of their number")
    if options.profile == "churn" or "launcher" in options.kinds:
        parser.error("--members: there is no launcher that offers slots, or that can be killed")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--profile", choices=["mixed", "churn"], default="mixed")
    parser.add_argument("--kinds", nargs="*", choices=sorted(KINDS), default=[], help="only these")
    parser.add_argument(
        "--pause", type=float, nargs=2, metavar=("LEAST", "MOST"), help="seconds before a fault"
    )
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--least", type=int, default=1, help="--min-np of the job")
    parser.add_argument("--hosts", type=int, default=0, help="hosts in network name spaces; 0: this machine")
    parser.add_argument("--members", action="store_true", help="no launcher: the members decide the views")
    parser.add_argument("--pace", type=float, default=0.02, help="seconds that a rank computes in each step")
    parser.add_argument(
        "--keep", action="store_true", help="never strike the oldest rank: is what it holds flat?"
    )
    parser.add_argument("--timeline", action="store_true", help="write a timeline on the disk that gets full")
    parser.add_argument("--limit", type=float, default=36000, help="seconds after which no fault begins")
    parser.add_argument("--folder", type=Path, help="keeps all records there; it must be new")
    options = parser.parse_args()
    check(parser, options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("punisher: ended by SIGTERM"))  # removes hosts and disk
    with contextlib.ExitStack() as undo:
        folder = options.folder or Path(
            undo.enter_context(tempfile.TemporaryDirectory(prefix="rueda-punish-"))
        )
        folder.mkdir(parents=True, exist_ok=options.folder is None)
        report = punish(options, folder.resolve())
    raise SystemExit(1 if report["hangs"] or report["wrong_bits"] else 0)


if __name__ == "__main__":
    main()
