"""Concurrent requests to AWS."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def request_pool(at_once: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool for `at_once` requests at a time; wait for all of them at the block's end.

    After Ctrl-C it does not wait: a request to a service that throttles may retry for a minute.
    """
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="ask")
    try:
        yield pool
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()
