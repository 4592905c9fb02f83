"""The registry of a data service: what it answers, and to whom."""

import socket

import pytest

pytest.importorskip("tensorflow")  # the package loads it

from rueda.tensorflow.data.registry import Board, Client, Registry, Unreachable

KEY = b"k" * 32


@pytest.fixture
def registry():
    with Registry(KEY) as made:
        yield made


def client(registry, key=KEY, timeout_s=60):
    return Client([("127.0.0.1", registry.port)], key, timeout_s)


def test_dispatchers_and_workers_are_found_by_those_who_wait(registry):
    one, other = client(registry), client(registry)
    one.register_dispatcher(1, "h:5000")
    one.register_worker_for_dispatcher(1, 7)
    one.register_worker_for_dispatcher(1, 7)
    one.register_worker_for_dispatcher(1, 8)
    assert other.wait_for_dispatcher_registration(1) == "h:5000"
    other.wait_for_dispatcher_worker_registration(1, workers=2)
    with pytest.raises(RuntimeError, match="no 3 workers of dispatcher 1 after 0 s"):
        other.wait_for_dispatcher_worker_registration(1, workers=3, timeout=0)
    with pytest.raises(RuntimeError, match="no dispatcher 0 after 0 s"):
        other.wait_for_dispatcher_registration(0, 0)
    with pytest.raises(RuntimeError, match="no 1 workers of dispatcher 0 after 0 s"):
        other.wait_for_dispatcher_worker_registration(0, 0)  # a timeout, as Horovod's clients have it
    assert other.own_address() == "127.0.0.1"


def test_a_client_tells_what_it_waits_for_if_it_is_asked_to(registry, capsys):
    from rueda.tensorflow.data.compute_service import TfDataServiceConfig

    addresses = {"lo": [("127.0.0.1", registry.port)], "other": [("127.0.0.1", registry.port)]}
    config = TfDataServiceConfig(1, 1, "compute", addresses, KEY, timeout=0)
    assert config.addresses == [("127.0.0.1", registry.port)]
    for verbose, lines in ((1, 0), (2, 1)):
        with pytest.raises(RuntimeError):
            config.compute_client(verbose=verbose).wait_for_dispatcher_registration(0)
        said = capsys.readouterr().err
        assert said.count("rueda: waiting for dispatcher 0 of the data service") == lines


def test_a_side_that_is_none_is_refused_on_every_rank():
    from rueda.tensorflow.data import compute_service, compute_worker

    for make in (
        lambda: compute_service.TfDataServiceConfig(1, 1, "server", [], KEY),
        lambda: compute_worker.main(1, "server", "file"),
    ):
        with pytest.raises(ValueError, match=r"dispatcher_side must be one of .*, not 'server'"):
            make()


def test_the_file_of_a_job_that_is_queued_is_awaited_without_an_end(tmp_path, monkeypatch, capsys):
    from rueda.tensorflow.data import compute_service

    config, file = compute_service.TfDataServiceConfig(1, 2, "compute", [("h", 1)], KEY), tmp_path / "config"
    hours = iter(range(10**6))

    class Time:
        monotonic = staticmethod(lambda: next(hours) * 3600.0)

        @staticmethod
        def sleep(_):
            if next(hours) > 20:
                config.write(file)

    monkeypatch.setattr(compute_service, "time", Time)
    with pytest.raises(FileNotFoundError):
        config.read(file, wait_for_file_creation=True, timeout=1)
    assert config.read(file, wait_for_file_creation=True) == config
    assert f"rueda: waiting for {file}, which compute_worker writes" in capsys.readouterr().err


def test_everybody_hears_of_the_end(registry):
    one, other = client(registry), client(registry)
    one.shutdown()
    other.wait_for_shutdown()


def test_who_waits_for_the_end_also_ends_with_the_registry():
    with Registry(KEY) as made:
        waiting = client(made)
    waiting.wait_for_shutdown()
    with pytest.raises(Unreachable, match="does not answer"):
        waiting.ask("look")


def test_a_dispatcher_cannot_be_replaced(registry):
    client(registry).register_dispatcher(0, "h:1")
    client(registry).register_dispatcher(0, "h:1")
    with pytest.raises(ValueError, match="another address"):
        client(registry).register_dispatcher(0, "h:2")


def test_strangers_are_not_answered(registry):
    with pytest.raises(Unreachable, match="refused the key"):
        client(registry, b"other" * 7).register_dispatcher(0, "h:1")
    for line in (b"\n", b'{"body": "{}", "proof": "00"}\n', b"x" * (1 << 17)):
        with socket.create_connection(("127.0.0.1", registry.port), timeout=20) as stranger:
            assert len(stranger.recv(16)) == 16
            try:
                stranger.sendall(line)
                assert stranger.recv(100) == b""
            except ConnectionError:
                pass
    assert client(registry).ask("look", dispatcher=0)["address"] is None


def test_an_impostor_is_not_believed():
    listener = socket.create_server(("127.0.0.1", 0))
    import threading

    def serve():
        connection, _ = listener.accept()
        with connection:
            connection.sendall(bytes(16))
            connection.recv(1 << 16)
            connection.sendall(b'{"body": "{\\"address\\": \\"evil:1\\"}", "proof": "00"}\n')

    thread = threading.Thread(target=serve)
    thread.start()
    with pytest.raises(ValueError, match="does not know the key"):
        Client([("127.0.0.1", listener.getsockname()[1])], KEY, 1).ask("look", dispatcher=0)
    thread.join(20)
    listener.close()


def test_unknown_questions_change_nothing():
    board = Board()
    assert board.answer({"kind": "?"}) == {"address": None, "workers": 0, "is over": False}
