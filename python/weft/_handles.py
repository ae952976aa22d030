"""Ownership of C handles: whatever Python collects, and in whatever order and thread, a handle is freed once, before what it
belongs to, and never while the model that it belongs to is at work.

The collector may run at any moment: within a callback of an evaluation, or in another thread while one is under way.  What
cannot be freed then waits, and goes when the model is used the next time, or is freed itself.  What is left when the
interpreter ends goes before its modules do.

A process that was forked has neither the threads of the handles that were open before, nor the memory of their models.  Calls
with these handles are errors there, and nothing frees them.
"""
import atexit
import os
import threading
import weakref
from typing import Any, Callable, Dict, List, Optional, Set

from ._library import WeftError, ffi


_locks: "weakref.WeakSet[Lock]" = weakref.WeakSet()


class Lock:
    """A lock that its thread may take several times.  In a forked process it is free, unless the thread that forked has it."""

    def __init__(self) -> None:
        self._lock, self._owner, self._depth = threading.RLock(), 0, 0
        _locks.add(self)

    def acquire(self, blocking: bool = True) -> bool:
        if not self._lock.acquire(blocking):
            return False
        self._owner = threading.get_ident()
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: Any) -> None:
        self.release()

    def forked(self) -> None:
        if not self._depth or self._owner != threading.get_ident():
            self._lock, self._depth = threading.RLock(), 0


class Handle:
    """One handle; `root` is that of the model (or file) to which it belongs, itself for that one."""

    def __init__(self, raw: Any, free: Callable[[Any], Any], owner: Optional["Handle"]) -> None:
        self.raw, self.free, self.owner = raw, free, owner
        self.children: Set["Handle"] = set()
        self.users = 0  # calls that read it without the lock
        self.closed = self.freed = self.inherited = False
        self.root: Handle = owner.root if owner else self
        self.lock = self.root.lock if owner else Lock()
        self.busy = False
        self.waiting: List[Handle] = []

    def check(self) -> None:
        if self.inherited:
            raise WeftError("this was opened before the process was forked, and has neither its threads nor its memory: open the model again")
        if self.freed:
            raise WeftError("the model of this has been closed")


_handles: Dict[int, Handle] = {}
_guard = Lock()  # of users and freed
_ended: List[bool] = []  # not empty: the interpreter ends
_process = os.getpid()


def _key(raw: Any) -> int:
    return int(ffi.cast("uintptr_t", raw))


def row_of(handle: Any) -> Handle:
    row = _handles.get(_key(handle))
    if row is None:
        raise WeftError("the model of this has been closed")
    return row


def owned(raw: Any, free: Callable[[Any], Any], owner: Any = None) -> Any:
    """raw as an object that frees it; owner: an object of this function that must outlive it."""
    above = row_of(owner) if owner is not None else None
    row = _handles[_key(raw)] = Handle(raw, free, above)
    if above:
        _free_waiting(above.root)
        above.children.add(row)
    return ffi.gc(raw, _release)


def lock_of(handle: Any) -> Lock:
    return row_of(handle).root.lock


def flush(handle: Any) -> None:
    """Frees what waits for that."""
    _free_waiting(row_of(handle).root)


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
        self.row, self.handle = row_of(handle), handle  # which stays alive
        self.root = self.row.root

    def __enter__(self) -> None:
        self.row.check()
        self.root.lock.acquire()
        _free_waiting(self.root)
        try:
            self.row.check()  # another thread may have closed it
        except WeftError:
            self.root.lock.release()
            raise
        self.root.busy = True

    def __exit__(self, *_: Any) -> None:
        self.root.busy = False
        self.root.lock.release()
        _free_waiting(self.root)


class reading:
    """While a call reads what belongs to a handle and needs no lock: if another thread closes it meanwhile, it is freed afterwards."""

    def __init__(self, row: Handle) -> None:
        self.row = row

    def __enter__(self) -> None:
        with _guard:
            self.row.users += 1
        if self.row.freed:
            self.__exit__()
            self.row.check()

    def __exit__(self, *_: Any) -> None:
        with _guard:
            self.row.users -= 1
        if self.row.closed:
            self.row.root.waiting.append(self.row)
            _free_waiting(self.row.root)


def _release(raw: Any, ended: List[bool] = _ended) -> None:
    """The destructor that cffi calls; after _at_exit, when this module's names may be gone, it does nothing."""
    if ended:
        return
    row = _handles[_key(raw)]
    row.root.waiting.append(row)
    _free_waiting(row.root)


def _free(row: Handle) -> None:
    row.closed = True
    while row.closed:
        with _guard:
            if row.children or row.users or row.freed:  # the collector may have run meanwhile
                return
            row.freed = True
        del _handles[_key(row.raw)]
        if not row.inherited:
            row.free(row.raw)
        if not row.owner:
            return
        row.owner.children.discard(row)
        row = row.owner


def _forked() -> None:
    for lock in _locks:
        lock.forked()
    for row in _handles.values():
        row.inherited = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
    _types = getattr(ffi, "_lock", None)  # which a thread of cffi has while it parses a type: the child could parse none
    if _types:
        os.register_at_fork(before=_types.acquire, after_in_parent=_types.release, after_in_child=_types.release)


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
