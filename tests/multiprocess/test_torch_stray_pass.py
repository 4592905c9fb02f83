"""A backward pass that belongs to no step, before zero_grad(): the error says which one is too many."""

import pytest
from harness import on_every_rank
from training import batches, loss_of, model, sgd

import rueda.torch as hvd


def make_one_too_many(op):
    net = model()
    optimizer = hvd.DistributedOptimizer(sgd(net), net.named_parameters(), backward_passes_per_step=2, op=op)
    # Adasum has sent its changes, in which the pass too many has no part.
    go_on = optimizer.step if op == hvd.Adasum else optimizer.zero_grad
    batch = batches(1, hvd.size())[0][hvd.rank()]
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(net, batch).backward()
        loss_of(net, batch).backward()
        optimizer.step()
    loss_of(net, batch).backward()
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    with pytest.raises(AssertionError, match=r"1 of these 2 passes came before the last zero_grad\(\)"):
        loss_of(net, batch).backward()
    go_on()
    loss_of(net, batch).backward()
    optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(2)  # as the sentence says
    loss_of(net, batch).backward()
    loss_of(net, batch).backward()
    with pytest.raises(AssertionError, match="Increase backward_passes_per_step"):
        loss_of(net, batch).backward()
    go_on()


@on_every_rank
def test_it_is_named_where_there_is_one_too_many():
    make_one_too_many(hvd.Average)


@on_every_rank
def test_it_is_named_for_adasum_too():
    make_one_too_many(hvd.Adasum)
