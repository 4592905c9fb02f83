"""A convolution of one input channel, in channels_last, ended the first step of PowerSGD and TopK.

Its gradient [16, 1, 3, 3] is small and travels as it is. Dimensions of length 1 have a stride that says
nothing, so `contiguous()` returned the gradient itself, and a view of the result in the gradient's shape had
other strides on the same memory: PyTorch refused to copy one into the other ("some elements of the input
tensor and the written-to tensor refer to a single memory location").
"""

from harness import assert_all_succeed
from nursery import launch

SCRIPT = """
import torch
import rueda.torch as hvd
hvd.init()
for compression in (hvd.PowerSGD(rank=1), hvd.TopK(ratio=0.1)):
    net = torch.nn.Conv2d(1, 16, 3).to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(sgd, net.named_parameters(), compression=compression)
    net(torch.full((2, 1, 5, 5), float(hvd.rank()))).sum().backward()
    optimizer.synchronize()
    assert torch.equal(net.weight.grad, torch.full((16, 1, 3, 3), 9.0)), net.weight.grad
"""


def test_compressors_take_the_gradient_of_a_convolution_of_one_channel():
    assert_all_succeed(launch(2, SCRIPT))
