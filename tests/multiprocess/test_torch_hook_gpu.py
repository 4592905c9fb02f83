"""The hook of gradients in C with memory of a GPU, on the tests' libcuda: a class of ours stands for
torch.Tensor, because torch has no GPU here. Work in streams runs late, so a wait that is forgotten shows old
values.
"""

import fake_gpu
import pytest
from harness import assert_all_succeed

pytestmark = fake_gpu.needed

PROGRAM = """
import weakref

import fake_gpu
import numpy as np
import rueda.numpy as hvd
from own_dlpack import CUDA, Numbers, dims, make_exchange
from rueda import _core, device, epochs
from rueda.open_operations import Repeated, open_operations, writing_back
from rueda.operations import Call
from rueda.process_sets import global_process_set
from rueda.repeats import prepare
from rueda.torch import gradient_hooks
from rueda.torch.pending_gradients import Activity, PendingGradient

driver = fake_gpu.Driver()
hvd.init()
assert device.is_taken(), device.support()
streams = [driver.stream(), driver.stream()]
current = streams[0]
ROWS, COLUMNS, MANY, STEPS = 3, 40, 30, 8


class Tensor:
    def __init__(self):
        self.array = fake_gpu.array(driver, np.zeros((ROWS, COLUMNS)), current)
        self.shape, self.strides = dims(ROWS, COLUMNS), dims(COLUMNS, 1)

    def is_neg(self):
        return False

    def fill(self, value):
        self.array.stream = current
        self.array.set_later(np.full((ROWS, COLUMNS), value))

    def read(self):
        self.array.stream = current
        return fake_gpu.read(driver, self.array)


def numbers_of(tensor):
    return Numbers(tensor.array.address, CUDA, tensor.shape, tensor.strides)


plugin = gradient_hooks.Plugin()
exchange = make_exchange(numbers_of, lambda: current)
assert plugin.install(Tensor, exchange, open_operations, writing_back) == b""


class Parameter:
    pass


activity, general, gradients, hooks = Activity(), [], [], []
for index in range(MANY):
    parameter = Parameter()
    parameter.grad = Tensor()
    gradient = PendingGradient(parameter, f"g{index}", 1)
    call = Call(_core.ALLREDUCE, _core.FLOAT32, (ROWS, COLUMNS), 0, op=_core.SUM, device=0,
                memory=_core.DEVICE_MEMORY)
    stream = device.Stream(0, current, lambda: current)
    recurring = prepare([(f"g{index}", 0, call)], global_process_set, "Allreduce", stream)
    recurring.checked_in = epochs.current()
    gradient.prepared = Repeated(recurring, stream)
    gradients.append(gradient)
    hooks.append(plugin.make(weakref.ref(gradient), activity, general.append))

asked = {"cuEventRecord": [], "cuStreamWaitEvent": []}  # in each step
total = hvd.size() * (hvd.size() + 1) / 2
for step in range(STEPS):
    current = streams[step % 2]
    before = {name: driver.calls(name) for name in asked}
    for index, (hook, gradient) in enumerate(zip(hooks, gradients)):
        gradient.parameter.grad.fill((hvd.rank() + 1) * (index + step + 1))
        hook(gradient.parameter)
    assert not general and len(open_operations) == MANY
    assert gradients[0].prepared.stream.handle == current
    waits = [driver.calls(name) for name in ("cuStreamSynchronize", "cuEventSynchronize")]
    current = streams[step // 2 % 2]  # that of the step: the one of backward, or another
    assert plugin.await_all(gradients, 1) == 1
    assert waits == [driver.calls(name) for name in ("cuStreamSynchronize", "cuEventSynchronize")]
    assert not open_operations
    for name, counts in asked.items():
        counts.append(driver.calls(name) - before[name])
    for index, gradient in enumerate(gradients):
        assert (gradient.parameter.grad.read() == total * (index + step + 1)).all(), (step, index)
# Gradients of a bucket share what is asked of CUDA; not in every step, as a plan ends when a rank is late.
assert all(min(counts) < MANY // 2 for counts in asked.values()), asked
hvd.shutdown()
"""


@pytest.mark.parametrize("backend", fake_gpu.BACKENDS)
def test_gradients_are_read_after_their_stream_and_seen_by_the_one_that_steps(backend):
    assert_all_succeed(fake_gpu.launch(2, PROGRAM, backend))
