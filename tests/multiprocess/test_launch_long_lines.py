"""Lines of ranks that are longer than what the launcher keeps: they pass whole, with one prefix."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from launch_support import PYTHON, RUEDA, run

pytestmark = pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built")

# Writes lines of JSON of up to 2 MB in pieces, and short lines between them; every other one to stderr.
JSON_LINES = """
import json, os, sys
rank = int(os.environ["RANK"])
for number in range(6):
    text = json.dumps({"rank": rank, "number": number, "text": "é" * (10 ** number * 4)}, ensure_ascii=False)
    data = (text + "\\n").encode()
    for at in range(0, len(data), 50_000):
        os.write(1 + number % 2, data[at:at + 50_000])
    os.write(1, b"short\\n")
"""


def documents(output: str, prefix: str):
    """Rank, number and length of the lines of JSON; every line has the prefix, and is "short" or JSON."""
    found = []
    for line in output.splitlines():
        match = re.fullmatch(prefix + "(.*)", line)
        assert match, line[:200]
        if match[2] == "short":
            continue
        document = json.loads(match[2])
        assert match[1] in ("", str(document["rank"]))
        found.append((document["rank"], document["number"], len(document["text"])))
    return sorted(found)


def expected(ranks, numbers):
    return [(rank, number, 4 * 10**number) for rank in range(ranks) for number in numbers]


def test_long_lines_of_json_stay_whole_on_the_console_and_in_files(tmp_path: Path):
    arguments = ["--output-filename", tmp_path / "out", PYTHON, "-c", JSON_LINES]
    status, out, err = run("-np", 3, *arguments)
    assert status == 0
    assert documents(out, r"\[(\d) localhost\] ") == expected(3, (0, 2, 4))
    assert documents(err, r"\[(\d) localhost\] ") == expected(3, (1, 3, 5))
    for rank in range(3):
        text = (tmp_path / f"out/rank.{rank}/stderr").read_text()
        assert documents(text, r"\[(\d) localhost\] ") == [(rank, n, 4 * 10**n) for n in (1, 3, 5)]


@pytest.mark.parametrize("options", [[], ["--no-prefix"]])
def test_lines_are_not_mixed_where_stdout_and_stderr_are_one_pipe(options):
    """A reader that is slow at first, so that the pipe is full and writes are cut."""
    command = f"{RUEDA} run -np 3 {' '.join(options)} {PYTHON} -c '{JSON_LINES}' 2>&1 | (sleep 1; cat)"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=100, check=True)
    prefix = r"(.*?)" if options else r"\[(\d) localhost\] "
    assert documents(done.stdout, prefix) == expected(3, range(6))


def test_long_lines_of_many_ranks_at_once_stay_whole():
    """Together they are longer than what one line may have."""
    script = "head -c 1000000 /dev/zero | tr '\\0' x; echo; echo short"
    status, out, err = run("-np", 40, "sh", "-c", script)
    assert status == 0 and err == ""
    assert sorted(out.splitlines()) == sorted(
        f"[{rank} localhost] {text}" for rank in range(40) for text in ("x" * 1_000_000, "short")
    )


ONE_HUGE_LINE = """
import os, sys
if os.environ["RANK"] == "0":
    for piece in range(150):
        sys.stdout.write(f"{piece:09}|" * 100_000)
    sys.stdout.write("\\n")
else:
    for number in range(20_000):
        print("line", number, "x" * 80)
"""

# Runs its arguments, and writes the peak of their memory in KiB to the file named first.
# A process of its own: a program's peak begins with that of its parent, and pytest's is high.
WITH_PEAK = """
import os, subprocess, sys, threading
job = subprocess.Popen(sys.argv[2:])
limit = threading.Timer(300, job.kill)
limit.start()
_, status, usage = os.wait4(job.pid, 0)
limit.cancel()
job.returncode = os.waitstatus_to_exitcode(status)
with open(sys.argv[1], "w") as peak:
    print(usage.ru_maxrss, file=peak)
sys.exit(job.returncode)
"""


def test_a_line_longer_than_the_memory_for_it_passes_in_one_piece(tmp_path: Path):
    """150 MB. What the launcher keeps is bounded, so the line is written while it grows, and others wait."""
    job = [RUEDA, "run", "-np", "2", PYTHON, "-c", ONE_HUGE_LINE]
    with open(tmp_path / "out", "wb") as out, open(tmp_path / "err", "wb") as err:
        measured = [PYTHON, "-c", WITH_PEAK, tmp_path / "peak", *job]
        done = subprocess.run(measured, stdout=out, stderr=err, timeout=320, check=False)
    assert done.returncode == 0 and (tmp_path / "err").read_bytes() == b""
    assert int((tmp_path / "peak").read_text()) < 700 << 10  # KiB
    huge = 0
    others = []
    with open(tmp_path / "out", "rb") as lines:
        for line in lines:
            if line.startswith(b"[0 localhost] "):
                huge += 1
                body = line[len(b"[0 localhost] ") : -1]
                assert len(body) == 150 * 100_000 * 10
                assert all(
                    body[at : at + 10] == b"%09d|" % (at // 1_000_000) for at in range(0, len(body), 99_990)
                )
            else:
                others.append(line)
    assert huge == 1
    assert others == [b"[1 localhost] line %d %s\n" % (number, b"x" * 80) for number in range(20_000)]


# Rank 0 never ends its line, once it is longer than what is kept, before rank 1 has printed; and rank 1 sees
# that its line has arrived only when the launcher shows it.
ENDLESS_LINE = """
import os, sys, time
rank, go = os.environ["RANK"], sys.argv[1]
if rank == "0":
    for piece in range(50):
        os.write(1, b"0123456789" * 100_000)
    open(go, "w").close()
else:
    while not os.path.exists(go):
        time.sleep(0.02)
    for number in range(3):
        print("line", number, flush=True)
while not os.path.exists(go + ".end"):
    time.sleep(0.02)
if rank == "0":
    os.write(1, b"tail\\n")
"""


def test_a_line_that_does_not_end_does_not_keep_the_others_waiting_for_ever(tmp_path: Path):
    go = tmp_path / "go"
    job = subprocess.Popen(
        [RUEDA, "run", "-np", "2", "--log-dir", tmp_path / "logs", PYTHON, "-c", ENDLESS_LINE, go],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    first = job.stdout.readline()
    assert first.startswith("[0 localhost] 0123456789") and len(first) > 16 << 20
    assert [job.stdout.readline() for _ in range(3)] == [
        f"[1 localhost] line {number}\n" for number in range(3)
    ]
    (tmp_path / "go.end").touch()
    rest, err = job.communicate(timeout=60)
    assert job.returncode == 0
    assert rest.startswith("[0 localhost] ") and rest.endswith("tail\n") and rest.count("\n") == 1
    whole = "0123456789" * 5_000_000 + "tail\n"
    assert first.removeprefix("[0 localhost] ")[:-1] + rest.removeprefix("[0 localhost] ") == whole
    assert re.fullmatch(
        r"rueda: a line of rank 0 was broken so that those of other ranks can follow: .*\n", err
    )
    assert (tmp_path / "logs/rank-0000.out").read_text() == whole
