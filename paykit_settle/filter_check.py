"""Finds out whether rows that do not say when they were created are of the day they were asked for.

A processor that filters by `created` without showing it gives other rows for the seconds around the day. One that does
not filter gives the same rows for every day, and each day would settle all of them.
"""

from collections.abc import Callable

from paykit_settle.client import ProcessorClient
from paykit_settle.errors import RunRefused
from paykit_settle.faults import Problem


async def refuse_unless_filtered(
    client: ProcessorClient, account: str, span: tuple[int, int], *, page_size: int, is_own: Callable[[str], bool]
) -> None:
    """Return if the second after the day and the one before it show no row that cannot be theirs, else `RunRefused`.

    `is_own` tells the ids of the day's own list. The second before is asked for as well, because a lower bound that is
    off by one shows only there.
    """
    start_s, end_s = span
    for second in (end_s, start_s - 1):
        reader, after = client.page_reader(), None
        while True:
            page = await client.page(
                account, span=(second, second + 1), page_size=page_size, after=after, reader=reader
            )
            for row in page.rows:
                if is_own(row.id) or row.created not in (None, second):
                    raise RunRefused([Problem(kind="row", subject=row.id, detail=_detail(second, span))])
            if page.next_cursor is None:
                break
            after = page.next_cursor


def _detail(second: int, span: tuple[int, int]) -> str:
    return (
        f"came for the second {second} outside the window [{span[0]}, {span[1]}): the processor does not filter by "
        "created, and the window has rows without it (setting rows_without_created, then --new-terms)"
    )
