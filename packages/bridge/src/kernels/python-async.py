"""Awaiting, for python-core.py: loaded when code awaits. `kernel` is that file's module."""

import asyncio
import selectors

CANCEL_SECONDS = 1  # Less than an interrupted run is given.
LOOP_FILES = (asyncio.__file__.rpartition('/')[0], selectors.__file__, kernel.KERNEL_FILES)

Kernel = kernel.Kernel


async def wait_for(awaitable):
    return await awaitable


async def evaluate(codes, namespace):
    for code in codes:
        value = kernel.enter(eval, code, namespace)
        if code.co_flags & kernel.CO_COROUTINE:
            value = await value
    return value


def settle(awaitable):
    """On one loop for all runs, so that tasks live on from one to the next."""
    if Kernel.loop is None or Kernel.loop.is_closed():
        Kernel.loop = asyncio.new_event_loop()
    loop = Kernel.loop
    asyncio.set_event_loop(loop)
    task = Kernel.task = loop.create_task(wait_for(awaitable))
    try:
        return kernel.enter(loop.run_until_complete, task)
    except asyncio.CancelledError:
        if Kernel.is_interrupted:
            raise KeyboardInterrupt from None
        raise
    except KeyboardInterrupt:
        cancel(loop, task)
        raise
    finally:
        Kernel.task = None
        if task.done() and not task.cancelled():
            task.exception()  # Marks it as seen; otherwise it is reported once more.


def is_waiting(frame):
    """Whether only the loop runs. An exception there could leave it in pieces, so the task is cancelled instead."""
    while frame is not None and frame.f_code is not kernel.enter.__code__:
        if not frame.f_code.co_filename.startswith(LOOP_FILES):
            return False
        frame = frame.f_back
    return True


def cancel(loop, task):
    """An interrupted task would go on with the next run that awaits."""
    if task.done():
        return
    task.cancel()
    timer = loop.call_later(CANCEL_SECONDS, loop.stop)
    try:
        loop.run_until_complete(task)
    except (asyncio.CancelledError, Exception):
        pass
    timer.cancel()


def close_loop():
    """As asyncio.run does at its end."""
    loop = Kernel.loop
    if loop.is_closed():
        return
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True)) if tasks else None
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
