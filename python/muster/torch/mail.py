"""Messages of the c10d backend by key (group, tag): the library's own go in one order from one member to another.

What comes from a rank, and how it is read, is in inbox.py. A message that comes before its receive was asked for is
kept, up to KEPT_BYTES_MAX of each rank. Then nothing more is read from that rank until the program takes some of it; a
wait for a later message of that rank, which could not come, raises ResourceExhausted.

A member that gives up an operation of a group tells the others: theirs end at once with muster.Aborted, which names it.
"""

import contextlib
import functools
import time

import numpy

import muster
from muster.torch.inbox import INLINE_BYTES, Inbox, bytes_of, envelope_of, notice_of, start_into

_SPINS = 200  # looks without a pause before those with one
_PAUSE_S = 0.0001
_LISTEN_S = 0.05  # an operation that takes longer asks for what the others have to say
_UNREAD_MAX = 16  # notices to one rank
_UNREAD_ALL_MAX = 256  # to all ranks together, but one to each: they are open requests, of which the library has 1,024
WAIT_S = 300  # for a message, as for each operation of the library
KEPT_BYTES_MAX = 256 << 20  # of one rank; each message counts as an envelope at least


class Sending:
    """A message that is sent: its array is the program's again when it is done."""

    def __init__(self, mail, rank, key, array):
        self.mail, self.rank, self.key, self.array = mail, rank, key, array
        content = bytes_of(array)
        is_small = len(content) <= INLINE_BYTES
        envelope = envelope_of(key, len(content), content if is_small else b"")
        self.parts = [envelope] if is_small else [envelope, content]
        self.requests = []  # one for each part that was started

    @property
    def is_started(self):
        return len(self.requests) == len(self.parts)

    @property
    def done(self):
        return self.is_started and all(each.done for each in self.requests)

    @property
    def error(self):
        """The error of an operation of a group that the receiver has given up."""
        return None if self.done else self.mail.inbox(self.rank).error_of(self.key)

    def wait(self):
        self.mail.wait(lambda: self.done, self.requests)
        self.mail.let_go(self)
        for each in self.requests:
            each.wait()

    def cancel(self):
        """The last part first: the receiver, which asks for them in their order, finds each given up."""
        for each in reversed(self.requests):
            each.cancel()
        self.mail.give_up(self)


class Receiving:
    """A message that is awaited from a rank, or from whichever of several ranks sends it first: rank is then its sender
    when it is done."""

    def __init__(self, mail, ranks, key, array):
        self.mail, self.key, self.bytes = mail, key, bytes_of(array)
        self.ranks = ranks  # those that may still send it
        self.rank = ranks[0] if len(ranks) == 1 else None
        self.message = None  # that which it gets: from here on no other
        self.done, self.error = False, None

    def wait(self):
        try:
            self.mail.wait_in_time(lambda: self.done or self._is_hopeless(), self.key)
        except BaseException:
            self.forget()
            raise
        if not self.done:
            self.forget()
            self.end(self.mail.inbox(self.ranks[0]).error_of_full(self))
        if self.error is not None:
            raise self.error

    def _is_hopeless(self):
        return all(self.mail.inbox(rank).is_full for rank in self.ranks)

    def forget(self):
        """Its array is not written to any more, unless its bytes are on their way."""
        for rank in self.ranks:
            awaited = self.mail.inbox(rank).awaited
            if self in awaited:
                awaited.remove(self)

    def lose(self, rank, error):
        """This rank sends nothing more."""
        self.ranks = [each for each in self.ranks if each != rank]
        if not self.ranks:
            self.end(error)

    def end(self, error=None):
        self.error = error
        self.done = True


class Mail:
    """Messages with the other members. Only calls of this object make the receives go on."""

    def __init__(self, strategy):
        self.strategy = strategy
        self._inboxes = {}  # by rank
        self._starting = {}  # rank: a Sending whose parts may not all have been started
        self._sendings = []  # nobody may have waited for them
        self._given_up = []  # sendings that were cancelled
        self._notices = {}  # rank: requests that tell it what was given up
        self._has_given_up = False  # an exchange: what others have sent for it still comes

    def inbox(self, rank):
        found = self._inboxes.get(rank)
        if found is None:
            found = self._inboxes[rank] = Inbox(self.strategy, rank, KEPT_BYTES_MAX)
        return found

    @property
    def is_awaited(self):
        """A receive is open, whose sender may wait for it. So may one whose exchange was given up here."""
        return any(each.waiting or each.is_half_read or (self._has_given_up and each.is_reading) for each in self._inboxes.values())

    # --- one message ---

    def send(self, rank, key, array):
        self._mend(rank)
        sending = Sending(self, rank, key, array)
        self._starting[rank] = sending
        try:
            for part in sending.parts:
                start_into(sending.requests, functools.partial(self.strategy.start, "send", rank=rank), part)
        except BaseException:
            sending.cancel()
            raise
        self._sendings.append(sending)
        del self._starting[rank]
        return sending

    def _mend(self, rank):
        """The envelope without its message is given up, or the receiver has it and waits for bytes. It gets one, which
        cannot be the message: both sides end that part with muster.Mismatch."""
        sending = self._starting.get(rank)
        if sending is None:
            return
        if sending.requests and not sending.is_started:
            sending.cancel()
            envelope = sending.requests[0]
            self.wait(lambda: envelope.done, [envelope])
            try:
                envelope.wait()
            except muster.Error:
                pass
            else:
                self.give_up(sending)
                start_into(sending.requests, functools.partial(self.strategy.start, "send", rank=rank), numpy.zeros(1, numpy.uint8))
        sending.parts = sending.parts[:len(sending.requests)]
        del self._starting[rank]

    def receive(self, rank, key, array):
        return self.receive_any([rank], key, array)

    def receive_any(self, ranks, key, array):
        """The first message with this key from one of the ranks: what the others send with it stays theirs."""
        receiving = Receiving(self, list(ranks), key, array)
        try:
            self._await(receiving)
            self.go_on()
        except BaseException:
            receiving.forget()
            raise
        return receiving

    def _await(self, receiving):
        for rank in receiving.ranks:
            self.inbox(rank).awaited.append(receiving)

    def let_go(self, sending):
        if sending in self._sendings:
            self._sendings.remove(sending)

    def give_up(self, sending):
        """Its requests still have to end before commit."""
        self.let_go(sending)
        self._given_up = [each for each in self._given_up if each is not sending and not each.done] + [sending]

    # --- operations of groups ---

    def exchange(self, key, outgoing, incoming):
        """Arrays to and from ranks, all at once. When one fails the rest is given up.

        A member that hears of a death first gives up its own messages, too. So no message is waited for by itself: the
        one that tells of the death may be another.
        """
        receivings = [Receiving(self, [rank], key, array) for rank, array in incoming.items()]
        try:
            for each in receivings:
                self._await(each)
            self.go_on()
            works = receivings + [self.send(rank, key, array) for rank, array in outgoing.items()]
            self._wait_for_each(works, key)
            for each in works:
                each.wait()
        except BaseException:
            self._has_given_up = True
            for each in receivings:
                each.forget()
            for each in [each for each in self._sendings if each.key == key]:
                each.cancel()
            raise

    def _wait_for_each(self, works, key):
        """Until all are done, or one fails. What takes long listens to receivers, too: they may have given up."""
        def is_over():
            return all(each.done for each in works) or any(each.error for each in works)

        listen_s = time.monotonic() + _LISTEN_S
        self.wait(lambda: is_over() or time.monotonic() > listen_s)
        inboxes = [self.inbox(each.rank) for each in works]
        try:
            for each in inboxes:
                each.is_listening = True
            self.wait_in_time(is_over, key)
        finally:
            for each in inboxes:
                each.is_listening = False
        for each in works:
            if each.error is not None:
                raise each.error

    def begin_operation(self, key, ranks):
        """Older ones of this group are over."""
        for rank in ranks:
            if rank in self._inboxes and self._inboxes[rank].given_up:
                self._inboxes[rank].forget_given_up(key)

    def tell_given_up(self, key, ranks, error):
        """The operation with this key has failed here: the other ranks need not wait for this one."""
        for rank in ranks:
            self._notices.setdefault(rank, [])
        most = max(1, min(_UNREAD_MAX, _UNREAD_ALL_MAX // len(self._notices)))
        for rank in ranks:
            unread = self._notices[rank] = [each for each in self._notices[rank] if not each.done]
            if len(unread) >= most:  # that rank waits for nothing of this one
                continue
            with contextlib.suppress(muster.Error, MemoryError):  # that rank has gone, or has to wait
                self._mend(rank)
                notice = notice_of(key, f"{type(error).__name__}: {error}")
                start_into(unread, functools.partial(self.strategy.start, "send", rank=rank), notice)

    # --- waiting ---

    def wait_in_time(self, is_done, key):
        """For a message with this key: the library does not end the reading of an envelope."""
        end_s = time.monotonic() + WAIT_S
        self.wait(lambda: is_done() or time.monotonic() > end_s)
        if not is_done():
            raise muster.DeadlineExceeded(f"no message with tag {key[1]} has come in {WAIT_S} s")

    def wait(self, is_done, requests=()):
        """Until it is done: receives that others may wait for go on meanwhile."""
        looks = 0
        while not is_done():
            if self.go_on():
                looks = 0
                continue
            waited = [each for each in requests if not each.done]
            if waited and not any(each.is_reading for each in self._inboxes.values()) and not is_done():
                try:
                    waited[0].wait()
                except muster.Error:
                    pass  # it is raised where the request's end is looked at
                continue
            self.strategy.poll()
            looks += 1
            if looks > _SPINS:
                time.sleep(_PAUSE_S)

    def go_on(self):
        """Look once at what comes. Returns whether something has."""
        moved = False
        for inbox in list(self._inboxes.values()):
            while inbox.is_active and inbox.look():
                moved = True
        return moved

    @property
    def has_sendings(self):
        """Messages that their receivers have not taken yet: close may raise what becomes of them."""
        return bool(self._sendings)

    def close(self):
        """What is sent is received; a receive that nobody has waited for is given up."""
        for rank in list(self._starting):
            self._mend(rank)
        while self._sendings:
            self._sendings[0].wait()
        requests = [request for inbox in self._inboxes.values() for request in inbox.end()]
        for each in [each for unread in self._notices.values() for each in unread]:
            each.cancel()  # whoever has not read it hears of this member's end
            requests.append(each)
        for each in requests + [request for sending in self._given_up for request in sending.requests]:
            try:
                each.wait()
            except muster.Error:
                pass
        self.strategy.poll()  # completes what has ended by itself
