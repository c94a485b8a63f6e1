"""Tasks end even where one cancellation is lost."""

from __future__ import annotations

import asyncio

from etloop.runtime.task_shutdown import end, is_ending


async def test_a_task_that_loses_a_cancellation_is_cancelled_again() -> None:
    lost = []

    async def forgetful() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lost.append(1)
        await asyncio.Event().wait()

    task = asyncio.create_task(forgetful())
    await asyncio.sleep(0)
    await end((task,), again_s=0)
    assert lost == [1]
    assert task.cancelled()


async def test_a_task_knows_that_it_is_ending_whatever_breaks_on_the_way() -> None:
    seen = []

    async def breaking() -> None:
        seen.append(is_ending())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(is_ending())
            raise OSError from None

    task = asyncio.create_task(breaking())
    await asyncio.sleep(0)
    await end((task,))
    assert seen == [False, True]
