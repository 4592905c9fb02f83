"""Batch normalisation over the batches of all ranks, on CPU and GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from rueda.basics import basics
from rueda.in_flight import synchronize_all
from rueda.policy import Sum
from rueda.torch import devices
from rueda.torch.gathers import allgather_async
from rueda.torch.reductions import allreduce_async


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation with the statistics of the whole batch, that is of all ranks.

    Input: [N, C, …] with C = num_features, at least 2-D, any N per rank. In training count, mean and inverse
    standard deviation per channel are gathered; in evaluation with tracked statistics, and in a single-
    process job, it is ordinary batch normalisation. Arguments as torch.nn.BatchNorm2d; momentum=None keeps a
    cumulative average. Ioffe & Szegedy, "Batch Normalization" (2015).
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalises [N, C, …]; the same shape and type."""
        self._check_input_dim(input)
        uses_batch = self.training or self.running_mean is None
        if not uses_batch or basics.size() == 1:
            return super().forward(input)
        output, mean, variance, count = _SyncBatchNorm.apply(input, self.weight, self.bias, self.eps)
        if self.training and self.track_running_stats:
            self._update_running(mean, variance, count)
        result: torch.Tensor = output
        return result

    @torch.no_grad()
    def _update_running(self, mean: torch.Tensor, variance: torch.Tensor, count: torch.Tensor) -> None:
        assert self.running_mean is not None and self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        factor = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)
        unbiased = variance * (count / (count - 1).clamp(min=1))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), factor)


class _SyncBatchNorm(torch.autograd.Function):
    """Returns the output, and mean [C], biased variance [C] and count [1] of the global batch."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, weight: Any, bias: Any, eps: float) -> Any:
        # Statistics are held in float32 at least, because 16-bit sums lose too much.
        x = input if input.dtype == torch.float64 else input.float()
        axes = [axis for axis in range(x.dim()) if axis != 1]
        count = x.numel() // max(1, x.shape[1])
        mean, variance = _local_statistics(x, axes, count)
        mean, variance, total = _global_statistics(mean, variance, count, eps)
        invstd = torch.rsqrt(variance + eps)
        shape = [1, -1] + [1] * (x.dim() - 2)
        normalised = (x - mean.view(shape)) * invstd.view(shape)
        ctx.save_for_backward(input, weight, mean, invstd, total)
        ctx.axes, ctx.shape = axes, shape
        if weight is not None:
            normalised = normalised * weight.view(shape) + bias.view(shape)
        ctx.mark_non_differentiable(mean, variance, total)
        return normalised.to(input.dtype), mean, variance, total

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        input, weight, mean, invstd, total = ctx.saved_tensors
        axes, shape = ctx.axes, ctx.shape
        dy = grads[0].to(mean.dtype)
        centred = input.to(mean.dtype) - mean.view(shape)
        sum_dy = dy.sum(axes)
        sum_dy_xmu = (dy * centred).sum(axes)
        grad_input = grad_weight = grad_bias = None
        if weight is not None:  # these stay local, because the optimizer reduces them
            grad_weight = (sum_dy_xmu * invstd).to(weight.dtype) if ctx.needs_input_grad[1] else None
            grad_bias = sum_dy.to(weight.dtype) if ctx.needs_input_grad[2] else None
        if ctx.needs_input_grad[0]:
            first = allreduce_async(sum_dy, None, "sync_batch_norm.sum_dy", Sum)
            second = allreduce_async(sum_dy_xmu, None, "sync_batch_norm.sum_dy_xmu", Sum)
            mean_dy, mean_dy_xmu = ((one / total).view(shape) for one in synchronize_all([first, second]))
            scale = invstd if weight is None else invstd * weight
            slope = (invstd * invstd).view(shape) * mean_dy_xmu
            grad_input = ((dy - mean_dy - centred * slope) * scale.view(shape)).to(input.dtype)
        return grad_input, grad_weight, grad_bias, None


def _local_statistics(x: torch.Tensor, axes: list[int], count: int) -> tuple[torch.Tensor, torch.Tensor]:
    if count == 0:  # an empty batch has no mean; its zeros get no weight later
        zeros = torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)
        return zeros, zeros
    variance, mean = torch.var_mean(x, axes, correction=0)
    return mean, variance


def _global_statistics(
    mean: torch.Tensor, variance: torch.Tensor, count: int, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Combines [C] per rank, weighted by count, without cancellation for large means.

    Chan, Golub & LeVeque (1979).
    """
    local = torch.full(
        (1,), float(count), dtype=mean.dtype, device=mean.device
    )  # without a copy from the host
    invstd = torch.rsqrt(variance + eps)
    handles = [
        allgather_async(local, "sync_batch_norm.count"),
        allgather_async(mean.unsqueeze(0), "sync_batch_norm.mean"),
        allgather_async(invstd.unsqueeze(0), "sync_batch_norm.invstd"),
    ]
    counts, means, invstds = synchronize_all(handles)
    total = counts.sum().view(1)
    # On a GPU, to look at the count would make the host wait for the device.
    if not devices.is_on_gpu(total) and float(total) <= 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got {int(total)} over all ranks."
        )
    shares = (counts / total).view(-1, 1)  # [ranks, 1]
    global_mean = (shares * means).sum(0)
    variances = invstds.pow(-2) - eps
    global_variance = (shares * (variances + (means - global_mean).pow(2))).sum(0).clamp(min=0)
    return global_mean, global_variance, total
