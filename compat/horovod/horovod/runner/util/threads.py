"""Threads with less ceremony."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable


def _check_tuple(args: Any) -> None:
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args)}, for a single argument use (arg,)")


def in_thread(
    target: Callable[..., Any],
    args: Sequence[Any] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Runs target(*args) in a started thread and returns the thread; silent swallows its exceptions."""
    _check_tuple(args)

    def body() -> None:
        try:
            target(*args)
        except Exception:
            if not silent:
                raise

    thread = threading.Thread(target=body, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    stop: threading.Event | None = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Runs func(*args) in a thread once the event is set, unless stop is set first."""
    if event is None:
        raise ValueError("on_event needs an event to wait for, not None.")
    _check_tuple(args)

    def wait_and_call() -> None:
        while not event.wait(check_stop_interval_s):
            if stop is not None and stop.is_set():
                return
        if stop is None or not stop.is_set():
            func(*args)

    return in_thread(wait_and_call, daemon=daemon, silent=silent)


def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: Sequence[Sequence[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> dict[int, Any] | None:
    """Calls fn(*args) for each entry in threads. Returns {index: result} of those that did not raise.

    Returns None if the threads are not awaited.
    """
    if not args_list:
        return {}
    pool = ThreadPoolExecutor(max_workers=min(len(args_list), max_concurrent_executions))
    futures = {index: pool.submit(fn, *args) for index, args in enumerate(args_list)}
    pool.shutdown(wait=block_until_all_done)
    if not block_until_all_done:
        return None
    return {index: future.result() for index, future in futures.items() if future.exception() is None}
