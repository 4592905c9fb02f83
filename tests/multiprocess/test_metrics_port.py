"""The port at which each rank answers: real jobs, a real Prometheus, and callers without the token."""

import contextlib
import hashlib
import hmac
import http.client
import os
import pathlib
import shutil
import socket
import subprocess

import pytest
from launch_support import PYTHON, ROOT, RUEDA
from metrics_support import PATIENCE_S, TRAINS, environment_of, prometheus, until
from ports import free_ports

# Trains, and stays until the file named by the first argument is there.
STAYS = f"""{TRAINS}
end = time.monotonic() + 120
while not os.path.exists(sys.argv[1]) and time.monotonic() < end:
    time.sleep(0.05)
hvd.allreduce(numpy.ones(10, numpy.float32), name="last")
print("ended", flush=True)
"""


@contextlib.contextmanager
def _job(folder, *options, **environment):
    """Two ranks of `rueda run` that have trained. At the end their output must be what it always is."""
    command = [RUEDA, "run", "-np", "2", *options, PYTHON, "-c", STAYS, str(folder / "enough")]
    with subprocess.Popen(
        command,
        env=environment_of(folder, **environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        try:
            lines = [job.stdout.readline() for _ in range(2)]
            assert all("trained" in line for line in lines), (lines, job.poll())
            yield job
            (folder / "enough").touch()
            out, job.said = job.communicate(timeout=PATIENCE_S)
            assert job.returncode == 0 and out.count("ended") == 2, (out, job.said)
        finally:
            (folder / "enough").touch()
            job.kill()


def _ask(port, token=None, path="/metrics", method="GET", host="127.0.0.1"):
    fields = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request(method, path, headers=fields)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def _snippet():
    """prometheus.yml of the documentation."""
    lines = (ROOT / "docs/metrics.md").read_text().splitlines()
    begin = lines.index("    scrape_configs:")
    return "\n".join(line[4:] for line in lines[begin : lines.index("", begin)])


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed (make setup)")
def test_prometheus_scrapes_each_rank_with_the_token_as_the_documentation_says(folder):
    port = free_ports(2)
    config = _snippet()
    for written, here in {
        "/run/user/1000/rueda/metrics-9400.token": str(folder / f"rueda/metrics-{port}.token"),
        "127.0.0.1:9400": f"127.0.0.1:{port}",
        "127.0.0.1:9401": f"127.0.0.1:{port + 1}",
        "job_name: rueda": "job_name: rueda\n    scrape_interval: 1s",
    }.items():
        assert written in config
        config = config.replace(written, here)
    with _job(folder, "--metrics-port", str(port)), prometheus(folder, config) as query:
        steps = until(lambda: query("rueda_steps_total"), lambda found: len(found) == 2)
        assert {one["metric"]["rank"]: one["value"][1] for one in steps} == {"0": "7", "1": "7"}
        assert {one["value"][1] for one in query("up")} == {"1"}
        # With a wrong token the targets are down.
        file = folder / f"rueda/metrics-{port}.token"
        file.write_text("0" * 64)
        until(lambda: query("up"), lambda found: [one["value"][1] for one in found] == ["0", "0"])


def test_only_who_shows_the_token_is_answered(folder):
    port = free_ports(2)
    with _job(folder, RUEDA_METRICS_PORT=str(port)):
        file = folder / f"rueda/metrics-{port}.token"
        assert file.stat().st_mode & 0o777 == 0o600
        token = file.read_text().strip()
        for rank in range(2):
            status, text = _ask(port + rank, token)
            assert status == 200 and f'rueda_up{{rank="{rank}",job="' in text
            for wrong in (None, "", token[:-1], token.upper(), "0" * 64):
                assert _ask(port + rank, wrong)[0] == 401, wrong
            assert _ask(port + rank, token, path="/")[0] == 404
            assert _ask(port + rank, token, method="POST")[0] == 405
        # Garbage, and callers that say nothing, disturb neither training nor Prometheus.
        with contextlib.ExitStack() as stack:
            for _ in range(30):
                caller = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
                caller.sendall(os.urandom(500))
            assert _ask(port, token)[0] == 200
    with pytest.raises(ConnectionRefusedError):
        _ask(port, token)
    assert not file.exists()


def test_the_token_follows_from_the_secret_and_goes_into_the_file_named(folder):
    secret = os.urandom(32)
    (folder / "secret").write_bytes(secret)
    (folder / "secret").chmod(0o600)
    (folder / "token").touch(0o640)
    port = free_ports(2)
    common = environment_of(
        folder,
        RUEDA_SIZE="2",
        RUEDA_STORE=f"file://{folder}/store",
        RUEDA_SECRET_FILE=str(folder / "secret"),
        RUEDA_METRICS_PORT=str(port),
        RUEDA_METRICS_TOKEN_FILE=str(folder / "token"),
    )
    (folder / "store").mkdir(mode=0o700)
    (folder / "enough").touch()
    ranks = [
        subprocess.Popen(
            [PYTHON, "-c", STAYS, str(folder / "enough")], env={**common, "RUEDA_RANK": str(rank)}
        )
        for rank in range(2)
    ]
    try:
        assert [rank.wait(PATIENCE_S) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
    token = hmac.new(secret, b"rueda metrics", hashlib.sha256).hexdigest()
    assert (folder / "token").read_text() == token + "\n"
    assert (folder / "token").stat().st_mode & 0o777 == 0o640
    assert not (folder / f"rueda/metrics-{port}.token").exists()


def test_a_given_token_opens_the_port_at_another_address(folder):
    """As a pod has it: its Secret is a link to a file that nobody may write."""
    token = os.urandom(32).hex()
    (folder / "data").write_text(token)
    (folder / "data").chmod(0o440)
    (folder / "token").symlink_to(folder / "data")
    port = free_ports(2)
    options = {
        "RUEDA_METRICS_PORT": str(port),
        "RUEDA_METRICS_ADDRESS": "127.0.0.3",
        "RUEDA_METRICS_TOKEN_FILE": str(folder / "token"),
    }
    with _job(folder, **options):
        assert _ask(port, token, host="127.0.0.3")[0] == _ask(port + 1, token, host="127.0.0.3")[0] == 200
        assert _ask(port, "0" * 64, host="127.0.0.3")[0] == 401
        with pytest.raises(ConnectionRefusedError):
            _ask(port, token)
    assert (folder / "data").read_text() == token
    assert not (folder / f"rueda/metrics-{port}.token").exists()


def test_a_port_in_use_costs_one_warning_and_training_goes_on(folder):
    port = free_ports(2)
    with socket.create_server(("127.0.0.1", port)), _job(folder, "--metrics-port", str(port)) as job:
        # Rank 1 has its port, and only who has one writes the token.
        token = (folder / f"rueda/metrics-{port}.token").read_text().strip()
        assert _ask(port + 1, token)[0] == 200
    warnings = [line for line in job.said.splitlines() if "does not serve its metrics" in line]
    assert len(warnings) == 1 and f"port {port} of 127.0.0.1 is in use" in warnings[0], job.said


def test_a_token_file_that_others_may_read_costs_one_warning_and_closes_the_port(folder):
    (folder / "token").touch()
    (folder / "token").chmod(0o644)
    port = free_ports(2)
    options = {"RUEDA_METRICS_PORT": str(port), "RUEDA_METRICS_TOKEN_FILE": str(folder / "token")}
    with _job(folder, **options) as job, pytest.raises(ConnectionRefusedError):
        _ask(port)
    assert job.said.count("run chmod 600 or 640 on it") == 2, job.said  # one of each rank


AGAIN = """
import pathlib, socket, sys
import rueda.numpy as hvd

def has_port():
    with socket.socket() as caller:
        return int(caller.connect_ex(("127.0.0.1", int(sys.argv[1]))) == 0)

for epoch in range(2):
    hvd.init()
    print(has_port())
    hvd.shutdown()
    print(has_port())
"""


@pytest.mark.parametrize("is_on", [True, False])
def test_a_process_has_the_port_while_it_is_initialized_and_only_if_asked(folder, is_on):
    port = str(free_ports(1))
    environment = environment_of(folder, **({"RUEDA_METRICS_PORT": port} if is_on else {}))
    done = subprocess.run(
        [PYTHON, "-c", AGAIN, port],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout.split() == [str(int(is_on)), "0"] * 2, done.stderr
    assert done.stderr == ""
    assert not list(pathlib.Path(folder, "rueda").glob("*.token"))
