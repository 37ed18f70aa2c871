"""Asks the processor what settlements it has for a day: evidence of what became of a send.

Not every processor lists settlements. One that has ever done so is not believed to have stopped: then it is out of
reach, and the absence of a list says nothing.
"""

from collections.abc import Callable
from datetime import date as Date
from functools import partial

from paykit_settle.client import ProcessorClient
from paykit_settle.errors import ProcessorRejected, ProcessorUnavailable
from paykit_settle.found_settlements import FoundSettlement, LookUpMode
from paykit_settle.store.processors import has_listed, note_listed
from paykit_settle.store.store import Store, clock_ms


class LookUp:
    """The settlements of one processor, by account and day."""

    def __init__(
        self,
        client: ProcessorClient,
        store: Store,
        *,
        mode: LookUpMode = "list",
        now_ms: Callable[[], int] = clock_ms,
    ) -> None:
        self._client = client
        self._store = store
        self._mode = mode
        self._now_ms = now_ms
        self._is_noted = False

    async def settlements(self, account: str, day: Date) -> list[FoundSettlement] | None:
        """Return what the processor has for that account and day, of all pages; None when it has no such look-up.

        Raises a `ProcessorError`: `ProcessorUnavailable` also when it has answered a look-up before and has no such
        route now, `ProcessorRejected` with what to configure when it does not let us look.
        """
        if self._mode == "none":
            return None
        try:
            found = await self._client.find_settlements(account, day)
        except ProcessorRejected as error:
            if error.status not in (400, 403):
                raise
            advice = 'let this key read settlements, or set lookup to "none" for a processor that has no such list'
            detail = f"the look-up of settlements was refused: {error}; {advice}"
            raise ProcessorRejected(detail, status=error.status, body=error.body) from None
        identity = self._client.identity
        if found is None:
            if await self._store.read(partial(has_listed, processor=identity)):
                raise ProcessorUnavailable(
                    f"{identity} has listed settlements before, and now has no such route: whether there is one for "
                    f'{day} is not known; if that is for good, set lookup to "none"'
                )
        elif not self._is_noted:
            await self._store.write(partial(note_listed, processor=identity, now_ms=self._now_ms()))
            self._is_noted = True
        return found
