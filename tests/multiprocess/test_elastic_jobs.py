"""Elastic jobs of `rueda run --min-np`: survivors go on without a restart, whatever is killed when."""

import json
import os
import pathlib
import sys

from harness import library
from launch_support import Run, assert_all_gone

PROGRAM = pathlib.Path(__file__).with_name("elastic_program.py")
PYTHON_PATH = str(PROGRAM.parents[2] / "python")


class Job:
    """An elastic job that has ended, and what its processes said."""

    def __init__(self, *options, actions=None, end=(2, 20), env=None, program=PROGRAM):
        variables = {
            "RUEDA_LIBRARY": library(),
            "PYTHONPATH": PYTHON_PATH,
            "OMP_NUM_THREADS": "1",
            "TEST_ACTIONS": json.dumps(actions or {}),
            "TEST_END": json.dumps(end),
            **(env or {}),
        }
        limit = [] if "--elastic-timeout" in options else ["--elastic-timeout", 60]
        run = Run("--no-prefix", *limit, *options, sys.executable, program, env=variables)
        self.status, self.out, self.err = run.finish()
        self.said = [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]
        assert_all_gone(run.processes())

    def all(self, what):
        return [one for one in self.said if one["what"] == what]

    def views(self, number):
        return [one for one in self.all("view") if one["number"] == number]

    def assert_state_is_exact(self, oldest_left=False):
        """Every rank of the last view ended with the same sum: that of the steps as the oldest saw them."""
        ends = self.all("end")
        assert len({(one["commit"], one["total"]) for one in ends}) == 1, ends
        assert len(ends) == ends[0]["size"], ends
        oldest = max(ends, key=lambda one: len(one["spans"]))
        if oldest_left:
            return
        assert oldest["spans"][0][0] == 1, "somebody has seen all views"
        expected = sum(size * (after - before) for _, size, before, after in oldest["spans"])
        assert oldest["total"] == expected, oldest


def killed(uid, commit, where, **more):
    return {uid: {"kill_at": commit, "while": where, **more}}


def test_survivors_of_a_rank_killed_in_an_allreduce_name_it_and_go_on():
    actions = killed("localhost:2#0", 5, "allreduce")
    job = Job("-np", 4, "--min-np", 3, actions=actions, env={"TEST_ELEMENTS": str(16 << 20)})
    assert job.status == 0, job.err
    errors = [one for one in job.all("error") if "rank 2" in one["text"]]
    assert {one["uid"] for one in errors} == {"localhost:0#0", "localhost:1#0", "localhost:3#0"}
    assert {one["kind"] for one in errors} == {"HorovodInternalError"}
    second = job.views(2)
    assert {(one["uid"], one["rank"]) for one in second} == {
        ("localhost:0#0", 0),
        ("localhost:1#0", 1),
        ("localhost:3#0", 2),
    }
    assert all(one["lost"] == ["localhost:2#0"] and one["size"] == 3 for one in second)
    assert len({(one["commit"], tuple(one["holders"])) for one in second}) == 1
    job.assert_state_is_exact()


def test_the_oldest_survivor_becomes_rank_0_when_rank_0_is_killed():
    job = Job("-np", 3, "--min-np", 2, actions=killed("localhost:0#0", 5, "step"))
    assert job.status == 0, job.err
    assert {(one["uid"], one["rank"]) for one in job.views(2)} == {("localhost:1#0", 0), ("localhost:2#0", 1)}
    job.assert_state_is_exact()


def test_a_rank_that_is_lost_before_its_first_init_is_replaced():
    job = Job("-np", 3, "--min-np", 2, actions=killed("localhost:1#0", 0, "start"), end=(3, 20))
    assert job.status == 0, job.err
    assert "rueda: view 2 has 2 ranks; gone: localhost:1#0" in job.err
    assert job.all("error") == []
    assert {one["uid"] for one in job.views(3)} == {"localhost:0#0", "localhost:1#1", "localhost:2#0"}
    job.assert_state_is_exact()


LOST_AT_FIRST = """
import os
import numpy as np
import rueda.numpy as hvd
if os.environ["RUEDA_ELASTIC_UID"] == "localhost:0#0":
    os._exit(3)
hvd.init()
state = hvd.elastic.ObjectState(bcast_object=hvd.broadcast_object, get_rank=hvd.rank, step=0)

@hvd.elastic.run
def train(state):
    while state.step < 20:
        assert np.all(hvd.allreduce(np.ones(3), op=hvd.Sum, name="x") == hvd.size())
        state.step += 1
        state.commit()

train(state)
print("fine", hvd.size(), flush=True)
"""


def test_a_job_that_needs_all_its_ranks_waits_for_the_replacement_of_one_lost_at_first(tmp_path):
    script = tmp_path / "lost_at_first.py"
    script.write_text(LOST_AT_FIRST)
    job = Job("-np", 2, "--min-np", 2, program=script)
    assert (job.status, job.out.splitlines()) == (0, ["fine 2"] * 2), job.err
    job = Job("-np", 2, "--min-np", 2, "--reset-limit", 0, program=script)
    assert job.status == 1
    assert "number of resets during elastic job exceeded limit: 0" in job.err


def test_a_replacement_joins_at_a_commit_and_no_step_is_lost():
    job = Job("-np", 3, "--min-np", 2, actions=killed("localhost:1#0", 5, "step"), end=(3, 20))
    assert job.status == 0, job.err
    third = job.views(3)
    assert len(third) == 3
    assert {one["uid"] for one in third} == {"localhost:0#0", "localhost:1#1", "localhost:2#0"}
    assert all(one["joined"] == [2] and one["lost"] == [] and one["holders"] == [0, 1] for one in third)
    interrupts = job.all("interrupt")
    assert len({one["commit"] for one in interrupts}) == 1, "all leave view 2 at one commit"
    assert len(interrupts) == 2
    assert all(one["added"] and not one["leave"] for one in interrupts)
    assert {one["commit"] for one in third} == {interrupts[0]["commit"]}
    job.assert_state_is_exact()


def test_a_rank_that_dies_while_the_next_view_is_agreed_is_left_out_too():
    actions = {**killed("localhost:3#0", 5, "step"), **killed("localhost:1#0", 0, "join")}
    job = Job("-np", 4, "--min-np", 2, actions=actions)
    assert job.status == 0, job.err
    assert {one["uid"] for one in job.views(2)} == {"localhost:0#0", "localhost:2#0"}
    assert all(sorted(one["lost"]) == ["localhost:1#0", "localhost:3#0"] for one in job.views(2))
    job.assert_state_is_exact()


def test_a_rank_that_dies_before_the_next_epoch_begins_costs_one_more_view():
    actions = {**killed("localhost:3#0", 5, "step"), **killed("localhost:0#0", 0, "init")}
    job = Job("-np", 4, "--min-np", 2, actions=actions, end=(3, 20))
    assert job.status == 0, job.err
    assert {one["size"] for one in job.views(2)} == {3}
    assert {one["uid"] for one in job.views(3)} >= {"localhost:1#0", "localhost:2#0"}
    assert all("localhost:0#0" in one["lost"] for one in job.views(3))
    job.assert_state_is_exact()


def test_a_job_with_too_few_processes_waits_and_then_says_the_number():
    actions = killed("localhost:1#0", 3, "step")
    for life in range(1, 9):
        actions |= killed(f"localhost:1#{life}", -1, "join")
    job = Job("-np", 2, "--min-np", 2, "--elastic-timeout", 3, actions=actions)
    assert job.status == 1
    assert "there was 1 process, and" in job.err
    assert "enough resources to run at least 2 Horovod processes" in job.err


def test_a_member_that_ends_early_is_told_and_replaced(tmp_path):
    script = tmp_path / "early.py"
    script.write_text(EARLY)
    job = Job("-np", 2, "--min-np", 2, program=script)
    assert (job.status, job.out.splitlines()) == (0, ["fine 2"] * 2), job.err
    assert "exited with code 0 (process localhost:1#0 of view 1) while the others went on" in job.err


EARLY = LOST_AT_FIRST.replace(
    '"localhost:0#0":\n    os._exit(3)', '"localhost:1#0":\n    hvd.init()\n    os._exit(0)'
)


def test_the_job_ends_when_no_process_holds_the_state_any_more():
    actions = {
        **killed("localhost:0#0", 5, "step"),
        **killed("localhost:1#0", 0, "init"),
    }
    job = Job("-np", 2, "--min-np", 1, actions=actions)
    assert job.status == 128 + 9
    assert "was killed by SIGKILL" in job.err


def test_more_changes_than_allowed_end_the_job():
    job = Job("-np", 3, "--min-np", 1, "--reset-limit", 0, actions=killed("localhost:1#0", 3, "step"))
    assert job.status == 1
    end = job.err[job.err.index("rueda: the job failed: ") :].splitlines()
    assert end[0].endswith("because number of resets during elastic job exceeded limit: 0")
    assert end[-1] == "  exit status 1"


def test_a_process_with_another_state_is_refused_and_the_others_go_on():
    actions = {**killed("localhost:1#0", 5, "step"), "localhost:1#1": {"digest": "another model"}}
    job = Job("-np", 3, "--min-np", 2, actions=actions, end=(3, 20))
    assert job.status == 0, job.err
    refused = job.all("refused")
    assert [one["uid"] for one in refused] == ["localhost:1#1"]
    assert "names, shapes or types of its state differ" in refused[0]["text"]
    assert any(one["uid"] == "localhost:1#2" for one in job.views(3))
    for uid in ("localhost:0#0", "localhost:2#0"):
        seen = [one for one in job.said if one["uid"] == uid and one["what"] in ("view", "interrupt")]
        changes = [("view", 2), ("interrupt", None), ("view", 3)]
        told = [(one["what"], one.get("number")) for one in seen]
        assert told == changes, "the process that was refused neither interrupted them nor made a view"
    job.assert_state_is_exact()


def test_a_process_that_is_stopped_is_killed_and_the_others_go_on():
    actions = killed("localhost:1#0", 5, "step", signal="SIGSTOP")
    job = Job("-np", 3, "--min-np", 2, actions=actions)
    assert job.status == 0, job.err
    assert "process localhost:1#0 has been stopped for 5 s; it is ended" in job.err
    assert all(one["lost"] == ["localhost:1#0"] for one in job.views(2))
    job.assert_state_is_exact()


def test_a_spare_takes_the_place_of_a_lost_rank_at_once():
    job = Job("-np", 2, "--min-np", 2, "-H", "localhost:3", "--spares", 1,
              actions=killed("localhost:0#0", 5, "step"))  # fmt: skip
    assert job.status == 0, job.err
    assert {(one["uid"], one["rank"]) for one in job.views(2)} == {("localhost:1#0", 0), ("localhost:2#0", 1)}


def discovery(folder, *answers):
    """A script that answers so, one call after the other; the last one for ever."""
    cases = "".join(f"{number}) {answer};; " for number, answer in enumerate(answers[:-1], 1))
    script = folder / "hosts.sh"
    script.write_text(
        f"cd {folder}; echo x >> calls; case $(wc -l < calls) in {cases} *) {answers[-1]};; esac\n"
    )
    return ["--host-discovery-script", f"sh {script}"]


def test_hosts_that_a_script_finds_join_and_those_that_go_leave_at_a_commit(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:2\n")
    variables = {
        "TEST_HOSTS_FILE": str(hosts),
        "TEST_HOSTS": json.dumps({"1": "localhost:3\n", "2": "\n localhost\n"}),
    }
    script = ["--host-discovery-script", f"cat {hosts}", "--slots", 2]
    job = Job("-np", 2, "--min-np", 1, *script, end=(3, 20), env=variables)
    assert job.status == 0, job.err
    assert all(one["size"] == 3 and one["joined"] == [2] for one in job.views(2))
    assert [one["uid"] for one in job.all("interrupt") if one["leave"]] == ["localhost:2#0"]
    assert [one["text"] for one in job.all("refused")] == [
        "this process was excluded from view 3 of the job; it has to end"
    ]
    assert all(one["size"] == 2 and one["lost"] == ["localhost:2#0"] for one in job.views(3))
    assert job.all("error") == []
    job.assert_state_is_exact()


def test_a_process_that_was_to_leave_keeps_the_state_if_the_others_die_before_the_next_view(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:2\n")
    variables = {"TEST_HOSTS_FILE": str(hosts), "TEST_HOSTS": json.dumps({"1": "localhost:1\n"})}
    script = ["--host-discovery-script", f"cat {hosts}"]
    actions = killed("localhost:0#0", 0, "join")
    end = (4, 20, 1, "localhost:0#1")  # on a busy machine the other one has more views before it comes
    job = Job("-np", 2, "--min-np", 1, *script, actions=actions, end=end, env=variables)
    assert job.status == 0, job.err
    assert [(one["uid"], one["lost"]) for one in job.views(2)] == [("localhost:1#0", ["localhost:0#0"])]
    last = max(one["number"] for one in job.all("view"))
    assert {one["uid"] for one in job.views(last - 1)} == {"localhost:1#0", "localhost:0#1"}, job.err
    for number in range(3, last - 1):  # it was to leave again, and the other one was not there yet
        assert [one["uid"] for one in job.views(number)] == ["localhost:1#0"], job.err
    assert [(one["uid"], one["lost"]) for one in job.views(last)] == [("localhost:0#1", ["localhost:1#0"])]
    assert [one["uid"] for one in job.all("refused")] == ["localhost:1#0"], "it has left in the end"
    interrupts = [one["commit"] for one in job.all("interrupt")]
    assert job.views(2)[0]["commit"] == interrupts[0] >= 0, "nothing was lost; the first commit is number 0"
    assert job.views(last)[0]["commit"] == interrupts[-1] >= job.views(last - 1)[0]["commit"]


def test_a_script_that_fails_or_lies_changes_nothing_and_is_told_once(tmp_path):
    calls = ["echo localhost:2", "exit 3", "exit 3", "echo oh no", "echo localhost:1", "echo localhost:3"]
    job = Job("-np", 2, "--min-np", 2, *discovery(tmp_path, *calls))
    assert job.status == 0, job.err
    lines = [line for line in job.err.splitlines() if line.endswith("the hosts stay as they were")]
    assert len(lines) == 3, job.err
    assert "Exit code: 3" in lines[0]
    assert 'it printed "oh no", which is neither host:slots nor host' in lines[1]
    assert "names 1 slot, fewer than --min-np 2" in lines[2]
    assert all(one["size"] == 3 and one["lost"] == [] for one in job.views(2))


def test_a_script_that_fails_at_first_ends_the_job():
    job = Job("-np", 2, "--host-discovery-script", "exit 4")
    assert job.status == 1
    assert "Failed to execute discovery script: exit 4. Exit code: 4" in job.err


def test_a_job_that_waits_for_slots_says_what_is_missing_and_ends_with_the_number(tmp_path):
    calls = ["echo localhost:1", "exit 3", "echo localhost:2"]
    job = Job("-np", 3, "--elastic-timeout", 5, *discovery(tmp_path, *calls))
    assert job.status == 1
    first, second, third = job.err.splitlines()
    assert "names 1 slot, and the job starts when there are 3 (-np)" in first
    assert "Exit code: 3; the job waits on" in second
    assert "names 2 slots, and there must be enough resources to run at least 3 Horovod processes" in third


SLOWLY = {"TEST_PAUSE_S": "0.03"}


def test_a_host_that_does_not_exist_is_named_and_the_job_goes_on(tmp_path):
    calls = ["echo localhost:2", "printf 'localhost:2\nno-such-host:1\n'"]
    job = Job("-np", 2, "--min-np", 2, *discovery(tmp_path, *calls), end=(1, 200), env=SLOWLY)
    assert job.status == 0, job.err
    told = [line for line in job.err.splitlines() if "host no-such-host cannot be used: " in line]
    assert len(told) == 1, job.err
    assert told[0].endswith("it is tried again as long as it belongs to the job")


# ---- leaving by SIGTERM ----


def test_a_rank_that_gets_sigterm_leaves_at_a_commit_and_is_replaced_elsewhere(tmp_path):
    # The one in its place begins when it has left: both at one commit would make no view 3.
    has_left = str(tmp_path / "view2")
    actions = killed("localhost:1#0", 5, "step", signal="SIGTERM")
    actions["localhost:3#0"] = {"starts_after": has_left}
    env = {"TEST_HOSTS": json.dumps({2: "begun"}), "TEST_HOSTS_FILE": has_left}
    job = Job("-np", 3, "--min-np", 2, "-H", "localhost:4", actions=actions, end=(3, 20), env=env)
    assert job.status == 0, job.err
    assert "process localhost:1#0 was told by SIGTERM to leave; it does so at the next commit" in job.err
    assert job.all("error") == []
    left = [one for one in job.all("interrupt") if one["leave"]]
    assert [one["uid"] for one in left] == ["localhost:1#0"]
    assert {one["uid"] for one in job.views(2)} == {"localhost:0#0", "localhost:2#0"}
    assert {one["commit"] for one in job.views(2)} == {left[0]["commit"]}, "no step is lost"
    assert "localhost:3#0" in {one["uid"] for one in job.views(3)}
    assert "exited with code 75" not in job.err
    job.assert_state_is_exact()


def test_the_only_rank_leaves_when_another_has_its_state():
    actions = killed("localhost:0#0", 5, "step", signal="SIGTERM")
    job = Job("-np", 1, "--min-np", 1, "-H", "localhost:2", actions=actions, end=(3, 20))
    assert job.status == 0, job.err
    assert {one["uid"] for one in job.views(3)} == {"localhost:1#0"}
    assert job.all("error") == []
    job.assert_state_is_exact(oldest_left=True)


def test_a_second_sigterm_ends_a_rank(tmp_path):
    script = tmp_path / "twice.py"
    script.write_text(
        "import os, signal, time\n"
        "import rueda.numpy as hvd\n"
        "from rueda import _core\n"
        "hvd.init()\n"
        "_core.elastic_committed(0)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('here', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(60)\n"
    )
    job = Job("-np", 1, "--min-np", 1, program=script)
    assert (job.status, job.out) == (128 + 15, "here\n"), job.err


def test_sigterm_to_the_launcher_ends_the_job_in_order():
    actions = killed("localhost:1#0", 5, "step", signal="SIGTERM", pid="launcher")
    job = Job("-np", 2, "--min-np", 1, actions=actions, end=(1, 1 << 30))
    assert job.status == 128 + 15, job.err
    assert "rueda: the job was stopped by SIGTERM" in job.err


PLAIN = """
import numpy as np
import rueda.numpy as hvd
from rueda import _core
assert _core.is_elastic()
for _ in range(3):
    hvd.init()
    assert np.all(hvd.allreduce(np.ones(3), op=hvd.Sum, name="x") == 3)
    hvd.shutdown()
print("fine", flush=True)
"""


def test_a_script_that_knows_nothing_of_views_runs_unchanged(tmp_path):
    script = tmp_path / "plain.py"
    script.write_text(PLAIN)
    job = Job("-np", 3, "--min-np", 2, program=script)
    assert (job.status, job.out.split()) == (0, ["fine"] * 3), job.err


def test_a_job_of_fixed_size_is_not_elastic(tmp_path):
    script = tmp_path / "fixed.py"
    script.write_text("from rueda import _core\nprint(_core.is_elastic(), _core.elastic_news())\n")
    run = Run(
        "-np", 1, "--no-prefix", sys.executable, script,
        env={"RUEDA_LIBRARY": library(), "PYTHONPATH": PYTHON_PATH},
    )  # fmt: skip
    status, out, err = run.finish()
    assert (status, out) == (
        0,
        "False News(hosts_added=False, hosts_removed=False, at_commit=-1, leave=False)\n",
    ), err


def test_options_that_do_not_fit_are_refused_in_a_sentence():
    for options, sentence in (
        (["-np", 2, "--min-np", 2, "--mpi"], "--min-np does not go with --mpi"),
        (["-np", 2, "--min-np", 3], "--min-np 3 is refused: it must be a whole number from 1 to 2"),
        (["-np", 2, "--min-np", 1, "--max-np", 1], "--max-np 1 is refused"),
        (["-np", 2, "--min-np", 1, "--max-restarts", 1], "--min-np does not go with --max-restarts"),
        (["-np", 2, "--min-np", 1, "--elastic-timeout", 0], "--elastic-timeout 0 is refused"),
    ):
        status, _, err = Run(*options, "true", env={"PATH": os.environ["PATH"]}).finish()
        assert (status, sentence in err) == (2, True), err
        assert len(err.splitlines()) == 1, err
