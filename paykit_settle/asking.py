"""One request with all its attempts: bounded in count and time, within the processor's budget, and certain at its end.

Knows no HTTP library; `retry.py` has the bounds. What it must never do: let a POST that may have had an
effect end as anything but `OutcomeUnknown`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import stamina

from paykit_settle.answers import still_unknown
from paykit_settle.budget import RequestBudget
from paykit_settle.errors import OutcomeUnknown, ProcessorError, ProcessorUnavailable, SettleError
from paykit_settle.processor_request import ProcessorRequest, Progress, exchange_of
from paykit_settle.retry import RetryPolicy

T = TypeVar("T")
Attempt = Callable[[Progress], Awaitable[T]]


async def ask(
    request: ProcessorRequest, attempt: Attempt[T], *, policy: RetryPolicy, budget: RequestBudget | None = None
) -> T:
    """What the first successful attempt gives, or one error that says what is certain.

    The deadline does not count waiting for the budget: that is the other runs' time, not the processor's.
    """
    progress = Progress(started=time.monotonic())
    deadline = asyncio.timeout(policy.deadline_s)
    try:
        async with deadline:
            try:
                return await _once(request, attempt, progress, policy, budget, deadline)
            except ProcessorError as error:
                if not error.retryable:
                    raise
                return await _again(request, attempt, progress, policy, budget, deadline, error)
    except TimeoutError:
        detail = f"no answer within {policy.deadline_s} s in all; before: {progress.last or 'nothing'}"
        failure: SettleError = ProcessorUnavailable(detail, exchange=exchange_of(request, progress))
    except SettleError as error:
        failure = error
    raise (still_unknown(failure, exchange_of(request, progress)) if progress.uncertain else failure)


async def _once(
    request: ProcessorRequest,
    attempt: Attempt[T],
    progress: Progress,
    policy: RetryPolicy,
    budget: RequestBudget | None,
    deadline: asyncio.Timeout,
) -> T:
    if budget is not None and not budget.try_enter():
        await _wait_for_turn(budget, request.account, deadline)
    certain_before = not progress.uncertain
    progress.attempt += 1
    progress.uncertain = request.method == "POST"
    try:
        return await attempt(progress)
    except SettleError as error:
        progress.last = error
        if certain_before and not isinstance(error, OutcomeUnknown):
            progress.uncertain = False
        if budget is not None and isinstance(error, ProcessorError) and error.retryable and error.retry_after_s:
            budget.hold(min(error.retry_after_s, policy.retry_after_max_s))
        raise
    finally:
        if budget is not None:
            budget.leave()


async def _wait_for_turn(budget: RequestBudget, account: str, deadline: asyncio.Timeout) -> None:
    clock = asyncio.get_running_loop().time
    left = (deadline.when() or 0) - clock()
    deadline.reschedule(None)
    await budget.enter(account)
    deadline.reschedule(clock() + left)


async def _again(
    request: ProcessorRequest,
    attempt: Attempt[T],
    progress: Progress,
    policy: RetryPolicy,
    budget: RequestBudget | None,
    deadline: asyncio.Timeout,
    first: ProcessorError,
) -> T:
    """The further attempts. Made only after a failure: the machinery costs as much as half a request."""
    failed: list[ProcessorError] = [first]

    def backoff(error: Exception) -> bool | float:
        if not isinstance(error, ProcessorError) or not error.retryable:
            return False
        return policy.wait(error.retry_after_s, elapsed_s=time.monotonic() - progress.started)

    async def next_attempt() -> T:
        if failed:
            raise failed.pop()  # the attempt that was made already
        return await _once(request, attempt, progress, policy, budget, deadline)

    retry = stamina.AsyncRetryingCaller(
        attempts=policy.attempts_max,
        timeout=None,
        wait_initial=policy.wait_first_ms / 1000,
        wait_max=policy.wait_max_s,
        wait_jitter=policy.wait_first_ms / 1000,
    )
    return await retry(backoff, next_attempt)
