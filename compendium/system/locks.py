"""Locks on files, which tell whether the process that holds one still lives.

A process holds a lock on a file of its own while it works. The operating system releases the lock when the
process ends, in whatever way, and keeps it while the process is suspended, so a process that was stopped with
Ctrl-Z, or whose computer sleeps, is not taken for dead. A process that ends normally removes its file. A file
that is still there and that nobody locks was therefore left by a process that was killed, unless that process
ran on another machine: machines may share a folder, and not every network file system passes locks on. This
is why the name of the file says on which machine the process runs.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def owner() -> str:
    """Return a name of this process: its number, after a hash of the machine's name, which is private."""
    return f"{_machine()}-{os.getpid()}"


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """Hold the lock on a file while the block runs, and remove the file afterwards.

    Parameters
    ----------
    lock : Path
        The file; its name must end in what `owner` returns and ``.lock``.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    file = lock.open("w")
    try:
        # On a file system without locks it cannot be told that a process was killed, and nothing is removed.
        if fcntl is not None:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        if fcntl is None:  # Windows removes no file that is open
            file.close()
        lock.unlink(missing_ok=True)
        file.close()


def is_held(lock: Path) -> bool | None:
    """Return whether the process that holds a lock still lives, or None if that cannot be told from here."""
    if not lock.is_file():
        return False
    if fcntl is None:
        return None
    try:
        with lock.open() as file:
            # A shared lock, so that two processes that ask at the same time do not find each other's lock.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return False if lock.stem.split("-")[-2] == _machine() else None


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Let one process at a time execute the block, by a lock on the file ``.lock`` in the folder.

    The system releases the lock when the process ends, in whatever way. On Windows, which has no ``fcntl``,
    no process waits for another one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _machine() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
