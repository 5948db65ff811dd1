"""Messages of the c10d backend by key (group, tag): the library's own go in one order from one member to another.

A message is an envelope of a fixed size, and after it what does not fit in there. A message that comes before its
receive was asked for is kept, up to KEPT_BYTES_MAX of each rank. Then nothing more is read from that rank until the
program takes some of it; a wait for a later message of that rank, which could not come, raises ResourceExhausted.
"""

import time

import numpy

import muster

_ENVELOPE_BYTES = 256
_HEAD_BYTES = 24  # group, tag, bytes
_INLINE_BYTES = _ENVELOPE_BYTES - _HEAD_BYTES
_SPINS = 200  # looks without a pause before those with one
_PAUSE_S = 0.0001
_FOREVER_S = 1e9
WAIT_S = 300  # for a message, as for each operation of the library
KEPT_BYTES_MAX = 256 << 20  # of one rank; each message counts as an envelope at least


def _bytes_of(array):
    return array.reshape(-1).view(numpy.uint8)


def _head_of(envelope):
    """The key of its message, and how many bytes that has."""
    group, tag, count = (int(each) for each in envelope[:_HEAD_BYTES].view(numpy.int64))
    return (group, tag), count


def _room_of(count):
    return max(count, _ENVELOPE_BYTES)


class Sending:
    """A message that is sent: its array is the program's again when it is done."""

    def __init__(self, mail, requests, array):
        self.mail, self.requests, self.array = mail, requests, array

    @property
    def done(self):
        return all(each.done for each in self.requests)

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
        self.mail, self.key, self.bytes = mail, key, _bytes_of(array)
        self.ranks = ranks  # those that may still send it
        self.rank = ranks[0] if len(ranks) == 1 else None
        self.done, self.error = False, None

    def wait(self):
        try:
            self.mail.wait_in_time(lambda: self.done or self._is_hopeless(), self.key)
        except BaseException:
            self.mail.forget(self)
            raise
        if not self.done:
            self.mail.forget(self)
            self.end(self.mail.error_of_full(self))
        if self.error is not None:
            raise self.error

    def _is_hopeless(self):
        return all(self.mail.is_full(rank) for rank in self.ranks)

    def begin(self, rank):
        """It comes from this rank, and from no other."""
        self.mail.forget(self)
        self.rank = rank

    def lose(self, rank, error):
        """This rank sends nothing more."""
        self.ranks = [each for each in self.ranks if each != rank]
        if not self.ranks:
            self.end(error)

    def end(self, error=None):
        self.done, self.error = True, error


class _Reading:
    """What comes from a rank now: an envelope, or the bytes of a message."""

    def __init__(self, request, memory, key=None, receiving=None):
        self.request, self.memory, self.key, self.receiving = request, memory, key, receiving


class Mail:
    """Messages with the other members. Only calls of this object make the receives go on."""

    def __init__(self, strategy):
        self.strategy = strategy
        self._sendings = []  # nobody may have waited for them
        self._given_up = []  # requests that were cancelled
        self._awaited = {}  # rank: receives in the order in which they were asked for
        self._kept = {}  # rank: (key, bytes) that nobody has asked for
        self._kept_bytes = {}  # rank: what they count
        self._held = {}  # rank: the envelope for whose message there is no room
        self._reading = {}  # rank: _Reading
        self._has_given_up = False  # an exchange: what others have sent for it still comes
        self._broken = {}  # rank: a Sending that could not be started whole

    @property
    def is_awaited(self):
        """A receive is open, whose sender may wait for it. So may one whose exchange was given up here."""
        return (any(self._awaited.values()) or any(each.key is not None for each in self._reading.values())
                or (self._has_given_up and bool(self._reading)))

    def send(self, rank, key, array):
        self._mend(rank)
        content = _bytes_of(array)
        envelope = numpy.zeros(_ENVELOPE_BYTES, numpy.uint8)
        envelope[:_HEAD_BYTES].view(numpy.int64)[:] = (*key, len(content))
        parts = [envelope]
        if len(content) <= _INLINE_BYTES:
            envelope[_HEAD_BYTES:_HEAD_BYTES + len(content)] = content
        else:
            parts.append(content)
        sending = Sending(self, [], array)
        try:
            for each in parts:
                sending.requests.append(self.strategy.start("send", each, rank=rank))
        except BaseException:
            if 0 < len(sending.requests) < len(parts):
                self._broken[rank] = sending
            sending.cancel()
            raise
        self._sendings.append(sending)
        return sending

    def _mend(self, rank):
        """The envelope without its message is given up, or the receiver has it and waits for bytes. It gets one, which
        cannot be the message: both sides end that part with muster.Mismatch."""
        sending = self._broken.get(rank)
        if sending is None:
            return
        envelope = sending.requests[0]
        self.wait(lambda: envelope.done, [envelope])
        try:
            envelope.wait()
        except muster.Error:
            pass
        else:
            end = self.strategy.start("send", numpy.zeros(1, numpy.uint8), rank=rank)
            self._given_up.append(end)
        del self._broken[rank]

    def receive(self, rank, key, array):
        return self.receive_any([rank], key, array)

    def receive_any(self, ranks, key, array):
        """The first message with this key from one of the ranks: what the others send with it stays theirs."""
        receiving = Receiving(self, list(ranks), key, array)
        for rank in ranks:
            self._awaited.setdefault(rank, []).append(receiving)
        try:
            self.go_on()
        except BaseException:
            self.forget(receiving)
            raise
        return receiving

    def forget(self, receiving):
        """Its array is not written to any more, unless its bytes are on their way."""
        for rank in receiving.ranks:
            awaited = self._awaited.get(rank, [])
            if receiving in awaited:
                awaited.remove(receiving)

    def let_go(self, sending):
        if sending in self._sendings:
            self._sendings.remove(sending)

    def give_up(self, sending):
        """Its requests still have to end before commit."""
        self.let_go(sending)
        self._given_up = [each for each in self._given_up + sending.requests if not each.done]

    def exchange(self, key, outgoing, incoming):
        """Arrays to and from ranks, all at once. When one fails the rest is given up.

        A member that hears of a death first gives up its own messages, too. So no message is waited for by itself: the
        one that tells of the death may be another.
        """
        receivings, sendings = [], []
        try:
            for rank, array in incoming.items():
                receivings.append(self.receive(rank, key, array))
            for rank, array in outgoing.items():
                sendings.append(self.send(rank, key, array))
            works = receivings + sendings
            if len({*incoming, *outgoing}) > 1:
                self.wait_in_time(lambda: all(each.done for each in works) or any(each.error for each in receivings), key)
                for each in receivings:
                    if each.error is not None:
                        raise each.error
            for each in works:
                each.wait()
        except BaseException:
            self._has_given_up = True
            for each in receivings:
                self.forget(each)
            for each in sendings:
                each.cancel()
            raise

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
            others = [each for each in self._reading.values() if each.request not in requests]
            waited = [each for each in requests if not each.done]
            if waited and not others and not is_done():
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
        for rank in {**self._awaited, **self._reading}:
            while self._look_at(rank):
                moved = True
        return moved

    def close(self):
        """What is sent is received; a receive that nobody has waited for is given up."""
        for rank in list(self._broken):
            self._mend(rank)
        while self._sendings:
            self._sendings[0].wait()
        for rank, envelope in self._held.items():
            self._read_message(rank, envelope, None)
        self._held.clear()
        reading = [each.request for each in self._reading.values()]
        self._reading.clear()
        for each in reading:
            each.cancel()
        for each in reading + self._given_up:
            try:
                each.wait()
            except muster.Error:
                pass
        self.strategy.poll()  # completes what has ended by itself

    # --- what comes from a rank ---

    def _look_at(self, rank):
        awaited = self._awaited.get(rank, [])
        if self._take_kept(rank, awaited):
            return True
        reading = self._reading.get(rank)
        try:
            if rank in self._held:
                if self.is_full(rank):
                    self._end_operations(rank)
                    return False
                reading = _Reading(None, self._held.pop(rank))
                self._open(rank, reading)
                return True
            if reading is None:
                if awaited:
                    self._read(rank)
                return False
            if not reading.request.done:
                return False
            del self._reading[rank]
            reading.request.wait()
            if reading.key is None:
                self._open(rank, reading)
            else:
                self._deliver(rank, reading.key, reading.memory, reading.receiving)
        except muster.Error as error:
            self._fail(rank, reading, error)
        return True

    def is_full(self, rank):
        """What comes from there next has no room, and nobody awaits it."""
        if rank not in self._held:
            return False
        key, count = _head_of(self._held[rank])
        return not self._has_room(rank, count) and all(each.key != key for each in self._awaited.get(rank, []))

    def _end_operations(self, rank):
        """End the operations of groups that wait for this rank: the program is inside of one, and receives nothing."""
        for each in list(self._awaited.get(rank, [])):
            if each.key[1] < 0:
                self.forget(each)
                each.end(self.error_of_full(each))

    def error_of_full(self, receiving):
        rank = receiving.ranks[0]
        kept = self._kept.get(rank, [])
        (_, tag), count = _head_of(self._held[rank])
        tags = ", ".join(str(each) for each in sorted({key[1] for key, _ in kept}))
        awaited = "an operation of a group" if receiving.key[1] < 0 else f"recv with tag {receiving.key[1]}"
        return muster.ResourceExhausted(
            f"{awaited} waits for rank {rank}, whose next message has tag {tag} and {count} bytes: messages that nobody has received "
            f"may have {KEPT_BYTES_MAX} bytes, and {self._kept_bytes.get(rank, 0)} are in use; receive tag {tags or tag} first")

    def _has_room(self, rank, count):
        return self._kept_bytes.get(rank, 0) + _room_of(count) <= KEPT_BYTES_MAX

    def _read(self, rank):
        """Whoever waits has a deadline, and the reading has none: one that ended would take the next message with it."""
        memory = numpy.empty(_ENVELOPE_BYTES, numpy.uint8)
        self._reading[rank] = _Reading(self.strategy.start("receive", None, memory, rank=rank, timeout=_FOREVER_S), memory)

    def _fail(self, rank, reading, error):
        """The sender has given this message up: the next look reads on. Or it has gone: then that read fails at once."""
        if reading is not None and reading.receiving is not None:
            if isinstance(error, muster.Mismatch):  # see _mend: the envelope has told how much comes
                error = muster.Aborted(f"rank {rank} could not send the rest of this message")
            reading.receiving.end(error)
            return
        if reading is not None and (reading.key is not None or isinstance(error, muster.Aborted)):
            return
        for each in self._awaited.pop(rank, []):
            each.lose(rank, error)

    def _open(self, rank, reading):
        """The reading of an envelope is that of its message from here on: what fails is this message."""
        key, count = _head_of(reading.memory)
        receiving = next((each for each in self._awaited.get(rank, []) if each.key == key), None)
        if receiving is None and not self._has_room(rank, count):
            self._held[rank] = reading.memory
            return
        if receiving is not None:
            receiving.begin(rank)
        reading.key, reading.receiving = key, receiving
        self._read_message(rank, reading.memory, receiving)

    def _read_message(self, rank, envelope, receiving):
        key, count = _head_of(envelope)
        if count <= _INLINE_BYTES:
            self._deliver(rank, key, envelope[_HEAD_BYTES:_HEAD_BYTES + count], receiving)
            return
        fits = receiving is not None and len(receiving.bytes) == count
        memory = receiving.bytes if fits else numpy.empty(count, numpy.uint8)
        self._reading[rank] = _Reading(self.strategy.start("receive", None, memory, rank=rank), memory, key, receiving)

    def _take_kept(self, rank, awaited):
        for place, (key, content) in enumerate(self._kept.get(rank, [])):
            receiving = next((each for each in awaited if each.key == key), None)
            if receiving is not None:
                del self._kept[rank][place]
                self._kept_bytes[rank] -= _room_of(len(content))
                receiving.begin(rank)
                self._deliver(rank, key, content, receiving)
                return True
        return False

    def _deliver(self, rank, key, content, receiving):
        if receiving is None:
            is_own = content.base is None  # a part of an envelope would keep it whole
            self._kept.setdefault(rank, []).append((key, content if is_own else content.copy()))
            self._kept_bytes[rank] = self._kept_bytes.get(rank, 0) + _room_of(len(content))
        elif len(receiving.bytes) != len(content):
            receiving.end(ValueError(
                f"the message of rank {rank} has {len(content)} bytes, and the tensor {len(receiving.bytes)}"))
        else:
            if content is not receiving.bytes:
                receiving.bytes[:] = content
            receiving.end()
