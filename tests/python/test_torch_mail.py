"""Messages of the c10d backend whose sender gives them up or dies: the strategy is one of this file, so that both come at each place."""
# Needs: torch
import numpy
import pytest

import muster
from muster.torch.mail import Mail

LARGE = 100
KEY, OTHER = (0, 1), (0, 2)


class Request:
    def __init__(self, done, error=None):
        self.done, self.error = done, error

    def wait(self):
        if self.error is not None:
            raise self.error


class Sender:
    """What the other member does, one part after the other: bytes, or GIVEN_UP. At the end of them it is dead.
    What is late comes when it is polled for."""

    def __init__(self, *parts, is_late=False):
        self.parts, self.is_late, self.open = list(parts), is_late, []

    def start(self, kind, input=None, output=None, rank=None):
        assert kind == "receive"
        if not self.parts:
            raise muster.Aborted("it is dead")
        part = self.parts.pop(0)
        request = Request(not self.is_late, muster.Aborted("it is given up") if part is GIVEN_UP else None)
        if request.error is None:
            output[:] = part
        if self.is_late:
            self.open.append(request)
        return request

    def poll(self):
        assert self.open, "a wait for what never comes"
        self.open.pop(0).done = True


GIVEN_UP = object()


def envelope(key, values):
    """The envelope of float64 values, with them where they fit."""
    memory = numpy.zeros(256, numpy.uint8)
    memory[:24].view(numpy.int64)[:] = (*key, 8 * len(values))
    if 8 * len(values) <= 232:
        memory[24:24 + 8 * len(values)] = values.view(numpy.uint8)
    return memory


small, large = numpy.full(3, 7.0), numpy.full(LARGE, 8.0)


def test_a_sender_that_dies_after_its_envelope_ends_that_receive():
    mail = Mail(Sender(envelope(KEY, large)))
    receiving = mail.receive(1, KEY, numpy.zeros(LARGE))

    with pytest.raises(muster.Aborted, match="dead"):
        receiving.wait()
    assert receiving.done and not mail.is_awaited
    with pytest.raises(muster.Aborted, match="dead"):
        mail.exchange(OTHER, {}, {1: numpy.zeros(3)})


def test_a_death_is_no_error_of_whoever_waits_for_another_rank():
    mail = Mail(Sender(envelope(KEY, large), is_late=True))
    receiving = mail.receive(1, KEY, numpy.zeros(LARGE))

    mail.wait(lambda: receiving.done)    # as a send to rank 2 would

    assert isinstance(receiving.error, muster.Aborted)


def test_a_message_that_nobody_awaits_is_given_up_without_the_others():
    mail = Mail(Sender(envelope(OTHER, large), GIVEN_UP, envelope(KEY, small), envelope(OTHER, large), large.view(numpy.uint8)))
    first, second = numpy.zeros(3), numpy.zeros(LARGE)

    mail.receive(1, KEY, first).wait()
    mail.receive(1, OTHER, second).wait()

    assert (first == small).all() and (second == large).all()


def test_a_message_that_is_given_up_ends_its_own_receive():
    mail = Mail(Sender(envelope(OTHER, large), GIVEN_UP, GIVEN_UP, envelope(KEY, small)))
    first, second = mail.receive(1, OTHER, numpy.zeros(LARGE)), mail.receive(1, KEY, numpy.zeros(3))

    second.wait()
    with pytest.raises(muster.Aborted, match="given up"):
        first.wait()
    assert not mail.is_awaited


def test_a_receive_that_cannot_begin_is_forgotten():
    class Broken:
        def start(self, *args, **words):
            raise RuntimeError("a fork")
    mail = Mail(Broken())

    with pytest.raises(RuntimeError):
        mail.exchange(KEY, {}, {1: numpy.zeros(3)})

    assert not mail.is_awaited


class SilentAndDead:
    """Rank 1 does nothing; rank 2 is dead, which is heard only by polling."""

    def __init__(self):
        self.open, self.polls, self.cancelled = [], 0, 0

    def start(self, kind, input=None, output=None, rank=None):
        if rank == 2 and self.polls:
            raise muster.Aborted("it is dead")
        request = Request(False)
        request.cancel = lambda: setattr(self, "cancelled", self.cancelled + 1)
        request.wait = lambda: self.end(request)
        if rank == 2:
            self.open.append(request)
        return request

    @staticmethod
    def end(request):
        assert request.done, "a wait for a silent rank alone"
        raise muster.Aborted("it is dead")

    def poll(self):
        self.polls += 1
        assert self.polls < 10, "the death of rank 2 is not heard"
        for request in self.open:
            request.done = True


def test_a_death_ends_an_exchange_that_waits_for_another_rank():
    strategy = SilentAndDead()
    mail = Mail(strategy)

    with pytest.raises(muster.Aborted, match="dead"):
        mail.exchange(KEY, {1: numpy.zeros(3)}, {1: numpy.zeros(3), 2: numpy.zeros(3)})

    assert strategy.cancelled == 1 and not mail.is_awaited


@pytest.mark.parametrize("outgoing, incoming", [({1: numpy.zeros(3)}, {}), ({}, {1: numpy.zeros(3)})])
def test_the_death_of_a_watched_rank_ends_an_exchange_with_others(outgoing, incoming):
    strategy = SilentAndDead()
    mail = Mail(strategy)

    with pytest.raises(muster.Aborted, match="dead"):
        mail.exchange(KEY, outgoing, incoming, [1, 2])

    assert strategy.cancelled == len(outgoing) and not mail.is_awaited
