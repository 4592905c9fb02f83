"""Backend "rueda": Works, timeouts, messages between two ranks, subgroups, and life beside hvd."""

import gc
import shutil
import tempfile
import threading
import weakref
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from conftest import WORLDS
from harness import on_every_rank
from process_groups import groups
from torch.distributed.device_mesh import init_device_mesh
from torch.profiler import ProfilerActivity, profile, record_function

import rueda.torch as hvd

pytestmark = pytest.mark.parametrize("world", WORLDS[:3], indirect=True)


@on_every_rank
def test_a_work_tells_how_far_it_is():
    with groups():
        tensor = torch.ones(4)
        if hvd.rank() == 0:  # the others come after the barrier below
            work = dist.all_reduce(tensor, async_op=True)
            assert not work.is_completed() and not work.is_success() and work.exception() is None
            with pytest.raises(hvd.HorovodInternalError, match=r"timed out: it has not ended within 0\.05 s"):
                work.wait(timedelta(seconds=0.05))
            future = work.get_future()
            assert not future.done() and work.get_future() is future
            called = threading.Event()
            future.then(lambda done: called.set())
        hvd.barrier()
        if hvd.rank() != 0:
            work = dist.all_reduce(tensor, async_op=True)
        assert work.wait() and work.is_completed() and work.is_success() and work.result()[0] is tensor
        assert tensor.tolist() == [hvd.size()] * 4
        if hvd.rank() == 0:
            assert called.wait(10) and future.value()[0] is tensor


@on_every_rank
def test_futures_complete_outside_the_engine_and_carry_errors():
    with groups(timeout_s=20):
        tensors = [torch.ones(100) for _ in range(20)]
        futures = [dist.all_reduce(tensor, async_op=True).get_future() for tensor in tensors]
        chained = [future.then(lambda done: done.value()[0].sum().item()) for future in futures]
        assert [future.wait() for future in chained] == [100.0 * hvd.size()] * 20
        assert torch.futures.collect_all(futures).wait()
        done = dist.all_reduce(torch.ones(1), async_op=True)
        done.wait()
        assert done.get_future().done() and done.result()[0].item() == hvd.size()
        failed = dist.all_reduce(torch.ones(2 + hvd.rank() % 2), async_op=True)
        with pytest.raises(RuntimeError, match="hape"):
            failed.get_future().wait()
        assert failed.is_completed() and not failed.is_success()
        assert isinstance(failed.exception(), hvd.HorovodInternalError)


@on_every_rank
def test_callbacks_may_wait_for_futures_of_any_origin():
    with groups():
        size = hvd.size()

        def total(depth):
            future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
            if depth == 0:
                return future
            return future.then(lambda done: done.value()[0] + total(depth - 1).wait()[0])

        assert total(9).wait().item() == 10 * size  # nine callbacks are open at once
        assert total(0).wait()[0].item() == size

        def raises(done):
            raise LookupError("a mistake of the user's")

        with pytest.raises(RuntimeError, match="a mistake"):
            total(0).then(raises).wait()
        first, second = total(0), total(0)  # asked for outside the callback, and perhaps ended before it
        assert first.then(lambda done: second.wait()[0] + done.value()[0]).wait().item() == 2 * size
        go_on, went_on = threading.Event(), []

        def holds(done):
            if threading.current_thread() is not threading.main_thread():  # as when it had ended by then
                went_on.append(go_on.wait(20))

        held = total(0).then(holds)
        assert total(0).then(lambda done: go_on.set()).wait() is None
        assert held.wait() is None and all(went_on)


@on_every_rank
def test_a_work_that_only_cpp_owns_ends_and_is_given_up():
    with groups():
        tensor = torch.ones(2)
        work = dist.all_reduce(tensor, async_op=True)
        alive, box = weakref.ref(work), work.boxed()  # the box is C++'s
        del work
        gc.collect()
        assert dist.Work.unbox(box).wait(timedelta(seconds=20))
        assert tensor.tolist() == [hvd.size()] * 2
        assert dist.Work.unbox(box).get_future().value()[0] is tensor
        del box
        dist.barrier()
        assert alive() is None, "kept for ever"


@on_every_rank
def test_a_late_rank_ends_waits_and_futures_with_a_sentence_and_may_still_come():
    late = r"timed out: it has not ended within 0\.3 s"
    with groups(timeout_s=0.3):
        tensor = torch.ones(2)
        if hvd.rank() == 0:
            work = dist.all_reduce(tensor, async_op=True)
            with pytest.raises(RuntimeError, match=f"all_reduce .* {late}"):
                work.get_future().wait()
            with pytest.raises(hvd.HorovodInternalError, match=late):
                work.wait()
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=30))
        dist.group.WORLD.set_timeout(timedelta(seconds=30))
        hvd.barrier()
        if hvd.rank() != 0:
            work = dist.all_reduce(tensor, async_op=True)
        work.wait(timedelta(seconds=30))
        assert tensor.tolist() == [hvd.size()] * 2


@on_every_rank
def test_a_profiler_sees_collectives_from_call_to_end_as_on_gloo():
    def calls(group):
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=group)
        dist.broadcast(tensor, 0, group=group)
        dist.all_gather([torch.zeros(2) for _ in range(hvd.size())], tensor, group=group)
        dist.barrier(group=group)
        if hvd.rank() < 2:
            (dist.send if hvd.rank() == 0 else dist.recv)(tensor, 1 - hvd.rank(), group=group)

    with groups() as gloo:
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            calls(None)
            calls(gloo)
        names = [event.name for event in seen.events()]
        mine = sorted(name.partition(":")[2] for name in names if name.startswith("rueda:"))
        assert mine and mine == sorted(name.partition(":")[2] for name in names if name.startswith("gloo:"))
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            work = dist.all_reduce(torch.ones(2), async_op=True) if hvd.rank() == 0 else None
            with record_function("alone"):
                pass
            hvd.barrier()
            (work or dist.all_reduce(torch.ones(2), async_op=True)).wait()
            dist.barrier()
        times = {event.name: event.time_range for event in seen.events()}
        if hvd.rank() == 0:  # the others call it after the barrier
            assert times["rueda:all_reduce"].start <= times["alone"].start
            assert times["rueda:all_reduce"].end >= times["alone"].end
        with pytest.raises(RuntimeError, match="hape"), profile(activities=[ProfilerActivity.CPU]):
            dist.all_reduce(torch.ones(2 + hvd.rank() % 2))


@on_every_rank
def test_messages_between_two_ranks_need_nobody_else():
    with groups():
        size, rank = hvd.size(), hvd.rank()
        after, before = (rank + 1) % size, (rank - 1) % size
        sent, received = torch.full((3,), float(rank)), torch.zeros(3)
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, sent, after), dist.P2POp(dist.irecv, received, before)]
        )
        for work in works:
            work.wait()
        assert received.tolist() == [float(before)] * 3
        # Tags tell messages apart, whatever the order of calls; a pair of ranks can do without the others.
        if rank == 0:
            first = dist.isend(torch.tensor([1.0]), 1, tag=7)
            second = dist.isend(torch.tensor([2.0]), 1, tag=8)
            first.wait(), second.wait()
            dist.send(torch.arange(6).view(2, 3), 1)
        if rank == 1:
            early, late = torch.zeros(1), torch.zeros(1)
            for_eight = dist.irecv(late, 0, tag=8)
            for_eight.wait()
            assert dist.recv(early, 0, tag=7) == 0 and (early.item(), late.item()) == (1.0, 2.0)
            flat = torch.zeros(6, dtype=torch.int64)
            dist.recv(flat, 0)
            assert flat.tolist() == list(range(6))
        with pytest.raises(ValueError, match="to itself"):
            dist.isend(sent, rank)


@on_every_rank
def test_an_open_receive_does_not_hold_up_collectives_and_their_futures():
    with groups():
        box = torch.zeros(1)
        waiting = dist.irecv(box, 0) if hvd.rank() == 1 else None
        early = waiting.get_future() if waiting is not None else None
        future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
        assert future.wait()[0].item() == hvd.size()
        if hvd.rank() == 0:
            dist.send(torch.tensor([5.0]), 1)
        if early is not None:
            early.wait()
            assert box.item() == 5.0 and waiting.source_rank() == 0


@on_every_rank
def test_groups_of_some_ranks_work_alone_and_side_by_side():
    with groups():
        size, rank = hvd.size(), hvd.rank()
        for _ in range(2):  # the same ranks twice: one process set, two groups
            ends = dist.new_group([0, size - 1])
            assert (ends is dist.GroupMember.NON_GROUP_MEMBER) == (rank not in (0, size - 1))
            if rank in (0, size - 1):
                tensor = torch.full((2,), float(rank + 1))
                dist.all_reduce(tensor, group=ends)
                assert tensor.tolist() == [float(size + 1)] * 2
                assert dist.get_process_group_ranks(ends) == [0, size - 1]
        alone = [dist.new_group([member]) for member in range(size)][rank]
        tensor = torch.tensor([3.0])
        dist.all_reduce(tensor, group=alone)
        assert tensor.item() == 3.0
        mesh = init_device_mesh("cpu", (size // 2, 2) if size == 4 else (1, size), mesh_dim_names=("a", "b"))
        tensor = torch.tensor([float(rank)])
        dist.all_reduce(tensor, group=mesh.get_group("b"))
        row = mesh.mesh[rank // 2] if size == 4 else mesh.mesh[0]
        assert tensor.item() == float(row.sum())
        if size == 4 and rank in (0, 3):
            dist.destroy_process_group(ends)
        dist.barrier()


@on_every_rank
def test_parts_of_the_job_divide_themselves_at_the_same_time():
    def total(group):
        tensor = torch.tensor([2.0 ** hvd.rank()])
        dist.all_reduce(tensor, group=group)
        return int(tensor.item())  # the bits of the group's ranks

    with groups():
        size, rank = hvd.size(), hvd.rank()
        low, _ = dist.new_subgroups_by_enumeration([[0], list(range(1, size))])
        assert total(low) == (1 if rank == 0 else 2**size - 2)
        parts, _ = dist.new_subgroups(group_size=2 if size == 4 else 1)
        alone, made = dist.new_subgroups(group_size=1, group=parts)
        assert total(alone) == 2**rank and len(made) == (2 if size == 4 else 1)
        mine = [0, 1] if rank < 2 else list(range(2, size))
        assert total(dist.new_group(mine)) == sum(2**member for member in mine)
        if size > 2:
            with pytest.raises(hvd.HorovodInternalError, match=r"rank 1 asks for one of ranks \[1, 2\]"):
                dist.new_group([0, 1] if rank == 0 else [1, 2])


@on_every_rank
def test_blocks_follow_group_ranks_where_those_are_not_sorted():
    with groups():
        from rueda.torch.distributed.group import RuedaProcessGroup

        size, rank = hvd.size(), hvd.rank()
        order = list(reversed(range(size)))  # world ranks by group rank
        me = order.index(rank)
        group = RuedaProcessGroup(me, order, "reversed", timedelta(seconds=30))
        blocks = [torch.zeros(2) for _ in range(size)]
        group.allgather([blocks], [torch.full((2,), float(me))]).wait()
        assert [block[0].item() for block in blocks] == list(range(size))
        flat = torch.zeros(size)
        group.all_gather_single(flat, torch.tensor([float(me)])).wait()
        assert flat.tolist() == list(range(size))
        part = torch.zeros(1)
        group.reduce_scatter_single(part, torch.arange(float(size))).wait()
        assert part.item() == me * size
        options = dist.ReduceScatterOptions()
        options.reduceOp = dist.ReduceOp.MAX
        group.reduce_scatter_single(part, torch.arange(float(size)) + me, options).wait()
        assert part.item() == me + size - 1
        for splits in ([], [1] * size):
            flat = torch.zeros(size)
            group.all_to_all_single(flat, 10.0 * me + torch.arange(float(size)), splits, splits).wait()
            assert flat.tolist() == [10.0 * other + me for other in range(size)]
        sent = torch.tensor([float(me)])
        group.broadcast([sent], size - 1).wait()
        assert sent.item() == size - 1
        scatter = dist.ScatterOptions()
        scatter.rootRank = 0
        group.scatter([part], [[torch.tensor([float(r)]) for r in range(size)]], scatter).wait()
        assert part.item() == me
        gather = dist.GatherOptions()
        gather.rootRank = size - 1
        group.gather([blocks], [torch.full((2,), float(me))], gather).wait()
        assert [block[0].item() for block in blocks] == list(range(size))


@on_every_rank
def test_names_and_process_sets_of_hvd_are_not_touched():
    before = hvd.mpi_ops._basics._get_process_set_ids_and_ranks()
    with groups():
        size, rank = hvd.size(), hvd.rank()
        pair = dist.new_group([0, 1])
        assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == before or size == 2
        # Unnamed operations of both, interleaved otherwise on each rank.
        if rank == 0:
            work = dist.all_reduce(torch.ones(2), async_op=True)
            handle = hvd.allreduce_async(torch.ones(2), op=hvd.Sum)
        else:
            handle = hvd.allreduce_async(torch.ones(2), op=hvd.Sum)
            work = dist.all_reduce(torch.ones(2), async_op=True)
        work.wait()
        assert hvd.synchronize(handle).tolist() == [size] * 2 and work.result()[0].tolist() == [size] * 2
        if size > 2:
            mine = hvd.add_process_set([0, 1])  # the ranks of a group: shared, and the user's own as well
            assert mine.process_set_id in hvd.mpi_ops._basics._get_process_set_ids_and_ranks()
            with pytest.raises(ValueError, match="duplicate"):
                hvd.add_process_set([1, 0])
            if rank < 2:
                assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=mine).item() == 2
            assert hvd.remove_process_set(mine) and mine.process_set_id is None
            assert not hvd.remove_process_set(mine)
        if rank < 2:  # the group lives on
            tensor = torch.ones(1)
            dist.all_reduce(tensor, group=pair)
            assert tensor.item() == 2
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == before


@on_every_rank
def test_groups_can_be_destroyed_and_made_again():
    for round_number in range(3):
        with groups():
            tensor = torch.full((2,), float(round_number))
            dist.all_reduce(tensor)
            assert tensor.tolist() == [round_number * hvd.size()] * 2
            old = dist.group.WORLD
        with pytest.raises(hvd.HorovodInternalError, match="was destroyed"):
            old.allreduce([torch.ones(1)])


@on_every_rank
def test_a_group_that_divides_devices_is_refused():
    with pytest.raises(ValueError, match="a rueda group serves all devices"):
        dist.init_process_group("cpu:rueda,cuda:nccl")
    assert not dist.is_initialized()


@on_every_rank
def test_launchers_that_disagree_about_ranks_are_refused():
    size, rank = hvd.size(), hvd.rank()
    path = hvd.broadcast_object(tempfile.mkdtemp() if rank == 0 else None, 0, "folder")
    for claimed, world, text in (
        ((rank + 1) % size, size, "let one launcher set the ranks of both"),
        (rank, size + 1, "let one launcher start the job"),
    ):
        store = dist.FileStore(f"{path}/{world}", world)
        with pytest.raises(hvd.HorovodInternalError, match=text):
            dist.init_process_group("rueda", store=store, rank=claimed, world_size=world)
        assert not dist.is_initialized()
    del store  # its end waits minutes for its file when that is gone
    gc.collect()
    hvd.barrier()
    if rank == 0:
        shutil.rmtree(path)


@on_every_rank
def test_calls_under_way_that_share_memory_run_one_after_the_other():
    with groups():
        size, rank = hvd.size(), hvd.rank()
        for i in range(20):
            whole = torch.full((size * 2000,), float(rank))
            mine = whole[2000 * rank : 2000 * (rank + 1)]
            works = [
                dist.all_gather_into_tensor(whole, mine, async_op=True),
                dist.all_reduce(whole, async_op=True),
                dist.all_reduce(whole, async_op=True),
                dist.broadcast(whole[:10], 1, async_op=True),
            ]
            for work in works:
                work.wait()
            expected = torch.arange(float(size)).repeat_interleave(2000) * size**2
            assert torch.equal(whole, expected), i
