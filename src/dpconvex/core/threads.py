"""Worker threads for sums over rows, with BLAS limited to one thread inside them."""

import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Item = TypeVar("Item")
Result = TypeVar("Result")


def available_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Own(threading.local):  # what a thread keeps for itself
    is_worker = False
    buffer: npt.NDArray[np.float64] = np.empty(0)


_local = _Own()


@functools.lru_cache(maxsize=8)
def _worker_pool(threads: int) -> ThreadPoolExecutor:
    """Return the process-wide pool of `threads` workers."""
    return ThreadPoolExecutor(threads, thread_name_prefix="dpconvex", initializer=_begin_worker)


def _begin_worker() -> None:
    _local.is_worker = True
    np.seterr(all="ignore")  # a signal would tell of rows
    for library in _blas_controller().lib_controllers:
        # For good, in a thread that is ours, where every thread has a limit of its own.
        if getattr(library, "threading_layer", None) == "openmp":
            library.set_num_threads(1)


def in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], threads: int
) -> Iterator[Result]:
    """Return ``function(item)`` of each, in their order, computed by so many workers if that is
    of use.
    """
    # A worker does it alone: if all workers waited for what others of them are to do, nobody would
    # do it.
    if threads <= 1 or len(items) == 1 or _local.is_worker:
        return map(function, items)
    return _worker_pool(threads).map(function, items)


_WORTH_THREADS = 1 << 22  # numbers


def finite_by_threads(array: object) -> bool:
    """Return whether a large array of floats has a finite sum, and so neither NaN nor
    infinities; blocks in threads.
    """
    # False says nothing: small arrays and others are left to checks of single values.
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind != "f":
        return False
    if array.size < _WORTH_THREADS or not (array.flags.c_contiguous or array.flags.f_contiguous):
        return False
    flat = array.ravel(order="K")
    threads = available_cores()
    edges = np.linspace(0, flat.size, 8 * threads + 1).astype(np.int64)

    def total(block: int) -> float:
        with np.errstate(all="ignore"):
            return float(flat[edges[block] : edges[block + 1]].sum())

    return bool(np.isfinite(list(in_threads(total, range(8 * threads), threads))).all())


def thread_scratch(rows: int, columns: int) -> npt.NDArray[np.float64]:
    """Return an array that this thread may overwrite until it asks again; its content is
    undefined.
    """
    # New arrays of a block's size would each cost more than a pass over them: the system clears
    # their memory.
    size = rows * columns
    buffer = _local.buffer
    if not size <= buffer.size <= 4 * size:
        buffer = _local.buffer = np.empty(size)
    return buffer[:size].reshape(rows, columns)


@contextmanager
def borrow_thread_array(size: int) -> Iterator[npt.NDArray[np.float64]]:
    """Lend an array of so many numbers, which nobody else has until it is given back; its
    content is undefined.
    """
    # It then serves whoever asks next in this thread, for the same reason as thread_scratch.
    free: list[npt.NDArray[np.float64]] = _local.__dict__.setdefault("free", [])
    buffer = free.pop() if free else np.empty(size)
    if not size <= buffer.size <= 4 * size:
        buffer = np.empty(size)
    try:
        yield buffer[:size]
    finally:
        if not free:
            free.append(buffer)


@functools.lru_cache(maxsize=1)
def _blas_controller() -> Any:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController().select(user_api="blas")


def _take_blas_thread_control() -> None:
    # threadpoolctl lets only one thread at a time set that of an OpenBLAS whose threads are shared,
    # and silently ignores all others, even when the first is done.
    for library in _blas_controller().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


_lock = threading.Lock()
_depth = 0
_limiter: Any = None


def _restart_threads_after_fork() -> None:
    """Let a forked process begin anew: threads of its parent do not go on there, nor give back
    what they hold.
    """
    global _lock, _depth, _limiter
    _worker_pool.cache_clear()
    _local.__dict__.clear()
    _lock = threading.Lock()
    _depth = 0
    limiter = _limiter
    _limiter = None
    if limiter is not None:
        _take_blas_thread_control()
        limiter.restore_original_limits()
        _take_blas_thread_control()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_threads_after_fork)


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep BLAS to one thread: blocks are small, and the workers already fill the cores."""
    # Entries are counted, so nested and concurrent use restores the caller's setting once, at the
    # end of the last one.
    global _depth, _limiter
    with _lock:
        if _depth == 0:
            _take_blas_thread_control()
            _limiter = _blas_controller().limit(limits=1)
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _take_blas_thread_control()  # the last one out need not be the first one in
                _limiter.restore_original_limits()
                _limiter = None
                _take_blas_thread_control()  # and nobody is left in control
