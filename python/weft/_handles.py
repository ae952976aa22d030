"""Ownership of C handles: whatever Python collects, and in whatever order and thread, a handle is freed once, before what it
belongs to, and never while the model that it belongs to is at work.

The collector may run at any moment: within a callback of an evaluation, or in another thread while one is under way.  What
cannot be freed then waits, and goes when the model is used the next time, or is freed itself.  What is left when the
interpreter ends goes before its modules do.
"""
import atexit
import os
import threading
from typing import Any, Callable, Dict, List, Optional, Set

from ._library import ffi


class Handle:
    """One handle; `root` is that of the model (or file) to which it belongs, itself for that one."""

    def __init__(self, raw: Any, free: Callable[[Any], Any], owner: Optional["Handle"]) -> None:
        self.raw, self.free, self.owner = raw, free, owner
        self.children: Set[int] = set()
        self.closed = False
        self.root: Handle = owner.root if owner else self
        self.lock = self.root.lock if owner else threading.RLock()
        self.busy = False
        self.waiting: List[int] = []


_handles: Dict[int, Handle] = {}
_ended: List[bool] = []  # not empty: the interpreter ends
_process = os.getpid()


def _key(raw: Any) -> int:
    return int(ffi.cast("uintptr_t", raw))


def owned(raw: Any, free: Callable[[Any], Any], owner: Any = None) -> Any:
    """raw as an object that frees it; owner: an object of this function that must outlive it."""
    above = _handles[_key(owner)] if owner is not None else None
    _handles[_key(raw)] = Handle(raw, free, above)
    if above:
        _free_waiting(above.root)
        above.children.add(_key(raw))
    return ffi.gc(raw, _release)


def lock_of(handle: Any) -> Any:
    return _handles[_key(handle)].root.lock


def flush(handle: Any) -> None:
    """Frees what waits for that."""
    _free_waiting(_handles[_key(handle)].root)


def _free_waiting(root: Handle) -> None:
    """Where another thread has the lock, that one does: it looks once more after it has given it back."""
    while root.waiting and not root.busy and root.lock.acquire(blocking=False):
        try:
            while root.waiting and not root.busy:
                _free(root.waiting.pop())
        finally:
            root.lock.release()


class working:
    """While a model evaluates: with working(handle)."""

    def __init__(self, handle: Any) -> None:
        self.root, self.handle = _handles[_key(handle)].root, handle  # which stays alive

    def __enter__(self) -> None:
        self.root.lock.acquire()
        _free_waiting(self.root)
        self.root.busy = True

    def __exit__(self, *_: Any) -> None:
        self.root.busy = False
        self.root.lock.release()
        _free_waiting(self.root)


def _release(raw: Any, ended: List[bool] = _ended) -> None:
    """The destructor that cffi calls; after _at_exit, when this module's names may be gone, it does nothing."""
    if ended:
        return
    root = _handles[_key(raw)].root
    root.waiting.append(_key(raw))
    _free_waiting(root)


def _free(key: int) -> None:
    row = _handles[key]
    row.closed = True
    while row.closed and not row.children and _handles.pop(_key(row.raw), None):  # the collector may have run meanwhile
        row.free(row.raw)
        if not row.owner:
            return
        row.owner.children.discard(_key(row.raw))
        row = row.owner


@atexit.register
def _at_exit() -> None:
    """Frees everything, what belongs to something first.  Nothing where other threads are left, which may be in the library,
    and in a process that was forked, which has none of the library's threads."""
    _ended.append(True)
    if threading.active_count() > 1 or os.getpid() != _process:
        return
    rows = list(_handles.values())
    _handles.clear()

    def free(row: Handle) -> None:
        for other in rows:
            if other.owner is row:
                free(other)
        row.free(row.raw)

    for row in rows:
        if not row.owner:
            free(row)
