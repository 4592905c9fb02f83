"""The reduction of one gradient by a compressor with state: several exchanges, one after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from rueda.compression import Exchange, StatefulCompressor, Team
from rueda.compression_choices import DISAGREE, NOT_SAVED, OTHER_KIND, WITHOUT_KEY
from rueda.errors import HorovodInternalError, internal_error
from rueda.in_flight import of_handle, settle_all
from rueda.open_operations import InFlight
from rueda.policy import Average
from rueda.torch.gathers import allgather_async
from rueda.torch.pending_gradients import PendingGradient, Settings
from rueda.torch.reductions import start_allreduce_

# Gradients whose exchange has ended wait for the others, and go on without them if none of those ends for so
# long: ranks that use different parameters, and read them before synchronize(), have not started the same.
PATIENCE_S = 2.0
INTERRUPTED = "The compression of gradient {name} was interrupted, so its sum is lost; compute it again."


class CompressedReduction:
    """Runs a compressor's generator for one gradient. Any thread."""

    def __init__(self, compressor: StatefulCompressor, name: str, grad: torch.Tensor, settings: Settings):
        """Starts the first exchange. The result goes to `grad`."""
        self._name, self._grad, self._settings = name, grad, settings
        process_set = settings.process_set
        size = process_set.size() or 1
        team = Team(process_set.rank() or 0, size, size if settings.op == Average else 1)
        self._compressor = compressor
        self._work = compressor.reduce(name, grad.detach().resolve_neg().contiguous(), team)
        self._under_way: list[InFlight] = []
        self._failure: BaseException | None = None
        self.is_complete = False
        self._lock = threading.RLock()
        self._go_on(lambda: next(self._work))

    @property
    def is_lost(self) -> bool:
        """Whether a shutdown ended it before its result was taken."""
        return not self.is_complete and any(one.is_lost for one in self._under_way)

    def settle(self) -> None:
        """Waits until the result is in the gradient. Raises what went wrong."""
        while not self.is_complete:
            self.advance()
        if self._failure is not None:
            raise self._failure

    def advance(self) -> None:
        """Waits for the exchange under way and starts the next, or completes."""
        with self._lock:
            if self.is_complete:
                return
            try:
                results = settle_all(self._under_way)
                self._go_on(lambda: self._work.send(results))
            except Exception as error:
                self._end(self._explained(error))

    def _explained(self, error: Exception) -> Exception:
        """A mismatch, with what this rank has asked for."""
        if not isinstance(error, HorovodInternalError) or "ismatched" not in str(error):
            return error
        hint = DISAGREE.format(name=self._name, mine=repr(self._compressor))
        return internal_error(str(error) + hint)

    def ends_by(self, deadline: float) -> bool:
        """Whether the exchange under way has ended by this time.monotonic(). One of which a part has failed
        has ended: other ranks may never start the rest.
        """
        for one in self._under_way:  # none once it is complete
            if not one.ends_by(deadline):
                return False
            if one.try_settle() and one.error is not None:
                return True
        return True

    def _go_on(self, resume: Callable[[], Exchange]) -> None:
        try:
            with torch.no_grad():
                self._under_way = [of_handle(handle) for handle in self._start(resume())]
        except StopIteration as end:
            with torch.no_grad():
                result = end.value.view(self._grad.shape)
                # What travelled as it is may be the gradient's own memory, with other strides.
                if result.data_ptr() != self._grad.data_ptr():
                    self._grad.copy_(result)
            self._end(None)
        except Exception:
            raise
        except BaseException:  # from a signal handler, and a generator cannot go on after that
            self._end(internal_error(INTERRUPTED.format(name=self._name)))
            raise

    def _start(self, exchange: Exchange) -> list[int]:
        op, factors, process_set = self._settings.op, self._settings.factors, self._settings.process_set
        summed = exchange.beside if exchange.is_gathered else exchange.tensors
        gathered = exchange.tensors if exchange.is_gathered else ()
        # Sums first: where ranks disagree they fail, and what is gathered may never end.
        handles = [start_allreduce_(one, self._full(end), op, factors, process_set, 0) for end, one in summed]
        return handles + [allgather_async(one, self._full(end), process_set) for end, one in gathered]

    def _full(self, ending: str) -> str:
        return f"{self._name}.{ending}" if ending else self._name

    def _end(self, failure: BaseException | None) -> None:
        self._failure = failure
        self._under_way = []
        self.is_complete = True


def check_saved(
    compressor: StatefulCompressor | None, state: Any, shapes: dict[str, tuple[int, ...]]
) -> None:
    """Raises ValueError unless the state of a compressor in a checkpoint is one that this compressor, or an
    optimizer without one, can continue from. {}: there is none.
    """
    if not isinstance(state, dict):
        raise ValueError(NOT_SAVED.format(found=repr(state)[:60], instead=WITHOUT_KEY))
    if compressor is not None:
        compressor.check_state(state, shapes)
    elif state:
        options = ", ".join(f"{key}={value}" for key, value in state.get("options", {}).items())
        saved = f"{state.get('kind', 'another kind')}({options})"
        raise ValueError(OTHER_KIND.format(saved=saved, mine="none", instead=WITHOUT_KEY))


def start_compressed(gradients: Iterable[PendingGradient], settings: Settings) -> None:
    """Starts reducing dense gradients by the compressor with state of these settings."""
    assert settings.compressor is not None
    for gradient in gradients:
        grad = gradient.fill()
        gradient.reduction = CompressedReduction(settings.compressor, gradient.name, grad, settings)


def advance_all(reductions: Iterable[object]) -> None:
    """Completes all compressed reductions among these. Each exchange of one is started when the one before it
    has ended for all: so the sums of a step come in the same buckets in every step, which a learned plan
    needs, and ranks that have started different gradients do not wait for one another in a circle.
    """
    pending = [one for one in reductions if isinstance(one, CompressedReduction) and not one.is_complete]
    while pending:
        for one in _ended(pending):
            one.advance()
        pending = [one for one in pending if not one.is_complete]


def _ended(pending: list[CompressedReduction]) -> list[CompressedReduction]:
    """Those whose exchange has ended, once all have, or none has ended for a while."""
    ended = []
    deadline = time.monotonic() + PATIENCE_S
    for one in pending:
        if one.ends_by(deadline):
            ended.append(one)
            deadline = time.monotonic() + PATIENCE_S
    return ended
