"""Handlers of signals while the engine waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator


def run_signal_handlers(raised: list[BaseException]) -> Callable[[], bool]:
    """A function for the engine to call: handlers of signals run in it, Ctrl-C's as well. True when one has
    raised, and then `raised` holds what.

    It is no ordinary function, because Python runs handlers before the first line of one, where nothing could
    catch what they raise. A generator resumes inside its `try`.
    """

    def generate() -> Iterator[bool]:
        while True:
            try:
                yield bool(raised)
            except GeneratorExit:
                return
            except BaseException as error:
                raised.append(error)

    generator = generate()
    next(generator)
    return generator.__next__
