"""Who works on a run: a process that holds an operating system lock for its whole life, named in its claims.

A lock dies with its process, however that ends, so a claim is taken over exactly when its owner is dead; no clock, no
heartbeat and no time-out decides it. Works among the processes of one machine, which is where one file is shared.
"""

import fcntl
import secrets
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

FOLDER_SUFFIX = "-owners"


class Owner:
    """This process's claim to be alive, for one database file. `close` gives it up; so does any end of the process."""

    def __init__(self, database: Path) -> None:
        self._folder = _folder_of(database)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self.name = secrets.token_hex(8)
        # Locked under a hidden name first: under its own it is never seen unlocked while its process lives.
        hidden = self._folder / f".{self.name}"
        self._lock = hidden.open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        hidden.rename(self._folder / self.name)
        # Processes that died without a claim left a file that nobody would ever ask about.
        for path in self._folder.glob("[!.]*"):
            self.is_alive(path.name)

    def is_alive(self, name: str) -> bool:
        """Whether the process behind an owner's name still lives. A name without a lock file is dead."""
        return _is_alive(self._folder / name)

    def close(self) -> None:
        """Gives the lock up and takes its file away."""
        (self._folder / self.name).unlink(missing_ok=True)
        self._lock.close()


def is_alive(database: Path, name: str) -> bool:
    """`Owner.is_alive` for one who is no owner: a person's command."""
    return _is_alive(_folder_of(database) / name)


def living_owners(database: Path) -> list[str]:
    """The names of the processes that work on this database right now; changes nothing."""
    return sorted(path.name for path in _folder_of(database).glob("[!.]*") if _is_alive(path, keep=True))


@contextmanager
def standing_in(copy: Path, names: Iterable[str]) -> Iterator[None]:
    """Let owners who live for a database be alive for a copy of it too, in a folder that the copy has to itself."""
    folder = _folder_of(copy)
    folder.mkdir(mode=0o700)
    with ExitStack() as held:
        for name in names:
            fcntl.flock(held.enter_context((folder / name).open("wb")), fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _folder_of(database: Path) -> Path:
    # Of the file itself, whichever of its paths it was opened by: else its owners would not see each other.
    file = database.resolve()
    return file.with_name(file.name + FOLDER_SUFFIX)


def _is_alive(path: Path, *, keep: bool = False) -> bool:
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if not keep:
                path.unlink(missing_ok=True)  # dead for good: a name is never used again
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
