"""What rueda.tensorboard makes of metrics; that files hold it is tested with model.fit."""

import pytest

from rueda.tensorboard import MetricsWriter, scalars_between

BEFORE = {
    "rueda_calls_total": {"allreduce": 10.0, "broadcast": 2.0},
    "rueda_planned_calls_total": 4.0,
    "rueda_bytes_total": {"allreduce": 1000.0},
    "rueda_waiting_seconds_total": {"operation": 1.0, "negotiation": 9.0},
    "rueda_step_seconds": {"count": 5.0, "sum": 10.0, "buckets": {}},
}


def test_scalars_describe_what_happened_between_two_looks():
    after = {
        "rueda_calls_total": {"allreduce": 18.0, "broadcast": 4.0},
        "rueda_planned_calls_total": 9.0,
        "rueda_bytes_total": {"allreduce": 3000.0, "allgather": 1000.0},
        "rueda_waiting_seconds_total": {"operation": 3.0, "negotiation": 99.0},
        "rueda_step_seconds": {"count": 9.0, "sum": 12.0, "buckets": {}},
    }
    assert scalars_between(BEFORE, after, 4.0) == {
        "rueda/bytes_per_second": 750.0,
        "rueda/waiting_share": 0.5,
        "rueda/step_seconds": 0.5,
        "rueda/planned_share": 0.5,
    }


def test_what_did_not_happen_has_no_scalar():
    assert scalars_between(BEFORE, BEFORE, 2.0) == {"rueda/bytes_per_second": 0, "rueda/waiting_share": 0}
    assert scalars_between({}, {}, 0) == {}


def test_a_writer_or_a_folder_is_needed_and_not_both():
    for arguments in ({}, {"log_dir": "x", "writer": object()}):
        with pytest.raises(ValueError, match="either log_dir or writer"):
            MetricsWriter(**arguments)


def test_a_writer_of_the_program_gets_the_scalars_and_stays_open():
    import numpy

    import rueda.numpy as hvd

    class Kept:
        def __init__(self):
            self.scalars, self.closed = [], 0

        def add_scalar(self, tag, value, step):
            self.scalars.append((tag, value, step))

        def flush(self):
            pass

        def close(self):
            self.closed += 1

    kept = Kept()
    hvd.init()
    try:
        with MetricsWriter(writer=kept) as metrics:
            for _ in range(3):
                hvd.allreduce(numpy.ones(1000, numpy.float32), name="g")
                hvd.mark_step()
            metrics.write(7)
        metrics.write(8)  # after its end
    finally:
        hvd.shutdown()
    scalars = {tag: value for tag, value, step in kept.scalars if step == 7}
    assert scalars["rueda/bytes_per_second"] > 0 and scalars["rueda/step_seconds"] > 0
    assert len(kept.scalars) == len(scalars) == 4 and kept.closed == 0
