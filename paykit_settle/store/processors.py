"""What is known of a processor: that it lists settlements."""

import apsw

from paykit_settle.endpoint import ProcessorIdentity
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change, one

_SQL = load_queries("lookups.sql")


def has_listed(connection: apsw.Connection, processor: ProcessorIdentity) -> bool:
    """Return whether it has ever answered a look-up of settlements."""
    return one(connection, _SQL["processor"], url=processor.url, key_mode=processor.key_mode) is not None


def note_listed(connection: apsw.Connection, processor: ProcessorIdentity, *, now_ms: int) -> None:
    """Keep that it has answered one."""
    change(connection, _SQL["note_processor"], url=processor.url, key_mode=processor.key_mode, now_ms=now_ms)
