"""Questions to AWS side by side."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def request_pool(at_once: int) -> Iterator[ThreadPoolExecutor]:
    """A pool for so many questions at once, all of them answered at its end.

    After Ctrl-C nobody waits for answers: a service that throttles is asked again for a minute.
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
