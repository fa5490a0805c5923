"""Asking until there is an answer, or until a time is over; the pauses are real."""

import time

from config.polling import Timeouts, poll


def test_the_first_answer_is_returned_and_ends_the_questions() -> None:
    answers = iter([None, None, 0, 7])
    assert poll(lambda: next(answers), Timeouts(60, 0.01)) == 0
    assert next(answers) == 7


def test_pauses_double_up_to_the_longest_and_are_reported() -> None:
    answers, pauses = iter([None] * 4 + [True]), list[float]()
    assert poll(lambda: next(answers), Timeouts(60, 0.01, 0.03), pauses.append)
    assert pauses == [0.01, 0.02, 0.03, 0.03]


def test_without_an_answer_the_last_question_is_at_the_end_of_the_time() -> None:
    began, asked = time.monotonic(), list[float]()
    assert poll(lambda: asked.append(time.monotonic() - began), Timeouts(0.3, 0.2)) is None
    assert len(asked) == 3
    assert asked[0] < 0.2 < asked[1] < 0.3 <= asked[2]


def test_without_time_it_asks_once() -> None:
    asked: list[None] = []
    assert poll(lambda: asked.append(None), Timeouts(0, 60)) is None
    assert asked == [None]


def test_jitter_varies_each_pause_within_its_part() -> None:
    pauses: list[float] = []
    assert poll(lambda: len(pauses) >= 20 or None, Timeouts(60, 0.01, jitter=0.5), pauses.append)
    assert len(set(pauses)) > 1
    assert 0.005 <= min(pauses) <= max(pauses) <= 0.015
