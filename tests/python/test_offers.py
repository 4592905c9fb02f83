"""Which hosts a launcher is told of, from offers that come and go; and the connections of offers."""

import contextlib
import socket
import threading

import pytest

from rueda.offers import job, sealed
from rueda.offers.hosts import SETTLE_SECONDS, Hosts, Offer

LATER = SETTLE_SECONDS + 1
KEY = bytes(range(32))


def hosts_of(*offers):
    hosts = Hosts("test")
    for offer in offers:
        hosts.add(offer, 0.0)
    return hosts


def test_a_machine_is_listed_when_it_has_settled():
    hosts = hosts_of(Offer(1, "10.0.0.1", "a"))
    assert hosts.listed(SETTLE_SECONDS / 2) == []
    hosts.add(Offer(2, "10.0.0.1", "a"), SETTLE_SECONDS / 2)
    assert hosts.listed(SETTLE_SECONDS) == []
    assert hosts.listed(LATER) == [("test-10.0.0.1", 2)]


def test_offers_that_come_later_add_slots_to_the_host():
    hosts = hosts_of(Offer(1, "10.0.0.1", "a"))
    assert hosts.listed(LATER) == [("test-10.0.0.1", 1)]
    hosts.add(Offer(2, "10.0.0.1", "a", slots=3), LATER)
    assert hosts.listed(LATER) == [("test-10.0.0.1", 4)]
    hosts.remove(2)
    assert hosts.listed(LATER) == [("test-10.0.0.1", 1)]


def test_a_host_ends_with_its_leader_and_the_next_one_has_another_name():
    hosts = hosts_of(Offer(1, "10.0.0.1", "a"), Offer(2, "10.0.0.1", "a"))
    assert hosts.listed(LATER) == [("test-10.0.0.1", 2)]
    assert hosts.find("test-10.0.0.1").leader == 1
    hosts.remove(1)
    assert hosts.find("test-10.0.0.1") is None
    assert hosts.listed(LATER) == [("test-10.0.0.1.1", 1)]
    assert hosts.find("test-10.0.0.1.1").leader == 2
    hosts.remove(2)
    assert hosts.listed(LATER) == []


def test_machines_of_one_address_have_different_names():
    hosts = hosts_of(Offer(1, "::1", "a"), Offer(2, "::1", "b"))
    assert hosts.listed(LATER) == [("test---1", 1), ("test---1.1", 1)]


def test_slots_whose_gpus_an_agent_does_not_know_wait_for_the_next_one():
    hosts = hosts_of(Offer(1, "h", "a", gpus=("0",)), Offer(2, "h", "a", gpus=("1",)))
    assert hosts.listed(LATER) == [("test-h", 2)]
    assert hosts.find("test-h").gpus == ("0", "1")
    hosts.add(Offer(3, "h", "a", gpus=("2",)), LATER)
    assert hosts.listed(2 * LATER) == [("test-h", 2)]
    hosts.remove(1)
    assert hosts.listed(2 * LATER) == [("test-h.1", 2)]
    assert hosts.find("test-h.1").gpus == ("1", "2")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"least": 0}, "min_num_proc is 0; it must be a whole number of at least 1"),
        ({"least": 2, "first": 1}, "num_proc is 1; it must be a whole number of at least 2"),
        ({"least": 2, "most": 1}, "max_num_proc is 1; it must be a whole number of at least 2"),
        ({"spares": -1}, "spares is -1"),
        ({"reset_limit": "x"}, "reset_limit is 'x'"),
        ({"timeout_s": -1}, "elastic_timeout is -1"),
    ],
)
def test_sizes_that_contradict_one_another_are_refused_by_name(given, words):
    with pytest.raises(ValueError, match=words):
        job.Size(**given)


def pair(key=KEY):
    """Both ends of a connection: the offer's and the driver's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = []

        def connect():
            with contextlib.suppress(sealed.Broken):
                found.append(sealed.connect(listener.getsockname(), KEY, 20))

        offer = threading.Thread(target=connect)
        offer.start()
        raw, _ = listener.accept()
        try:
            driver = sealed.accept(raw, key)
        except sealed.Broken:
            raw.close()
            raise
        finally:
            offer.join()
    return found[0], driver


def test_messages_arrive_in_order_both_ways():
    offer, driver = pair()
    bodies = [b"", b"a", bytes(range(256)) * 300]
    for body in bodies:
        offer.send(sealed.OUT, body)
        driver.send(sealed.IN, body)
    assert [driver.receive() for _ in bodies] == [(sealed.OUT, body) for body in bodies]
    assert [offer.receive() for _ in bodies] == [(sealed.IN, body) for body in bodies]
    offer.close()
    with pytest.raises(sealed.Broken, match="closed"):
        driver.receive()
    driver.close()


def test_who_does_not_know_the_key_is_refused():
    with pytest.raises(sealed.Broken, match="stranger"):
        pair(bytes(32))


def test_nobody_else_reads_a_body_and_equal_bodies_look_different():
    seal = sealed.Seal(KEY, b"to driver")
    one, other = seal.encode(1, b"secret" * 10), seal.encode(1, b"secret" * 10)
    assert b"secret" not in one and one[21:] != other[21:]


@pytest.mark.parametrize("place", [0, 4, 5, 20, 21, 25])
def test_a_changed_message_is_refused(place):
    raw = bytearray(sealed.Seal(KEY, b"to driver").encode(1, b"hello"))
    raw[place] ^= 1
    with pytest.raises(sealed.Broken, match="changed"):
        sealed.Seal(KEY, b"to driver").decode(bytes(raw[:5]), bytes(raw[5:21]), bytes(raw[21:]))


def test_a_message_that_is_repeated_left_out_or_reflected_is_refused():
    writer = sealed.Seal(KEY, b"to driver")
    first, second = (writer.encode(1, b"hello") for _ in range(2))

    def decode(seal, raw):
        return seal.decode(raw[:5], raw[5:21], raw[21:])

    reader = sealed.Seal(KEY, b"to driver")
    assert decode(reader, first) == (1, b"hello")
    with pytest.raises(sealed.Broken):
        decode(reader, first)
    with pytest.raises(sealed.Broken):
        decode(sealed.Seal(KEY, b"to driver"), second)
    with pytest.raises(sealed.Broken):
        decode(sealed.Seal(KEY, b"to offer"), first)


def test_a_message_that_is_too_long_is_refused_before_it_is_read():
    offer, driver = pair()
    offer.raw.sendall(b"\1" + (sealed.MAX_BODY_BYTES + 1).to_bytes(4, "big"))
    with pytest.raises(sealed.Broken, match="are allowed"):
        driver.receive()
    with pytest.raises(ValueError, match="longer"):
        offer.send(sealed.OUT, bytes(sealed.MAX_BODY_BYTES + 1))
    offer.close()
    driver.close()
