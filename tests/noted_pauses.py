"""Pauses of the code under test, which take no time and are noted."""

import threading
import time

import pytest


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Note the pauses of the test's own thread, in seconds; other threads pause as always."""
    noted: list[float] = []
    sleep, own = time.sleep, threading.get_ident()

    def pause(seconds: float) -> None:
        if threading.get_ident() == own:
            noted.append(seconds)
        else:
            sleep(seconds)

    monkeypatch.setattr("time.sleep", pause)
    return noted
