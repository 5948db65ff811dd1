"""Messages that come from one rank: an envelope of a fixed size each, and after it what does not fit in there.

Errors of memory and signals may break off any look at what comes. So each step ends with one store that says that it is
done, and what comes before that store is done again by the next look: the place in the stream is never lost.
"""

import functools

import numpy

import muster

ENVELOPE_BYTES = 256
HEAD_BYTES = 24  # group, tag, bytes
INLINE_BYTES = ENVELOPE_BYTES - HEAD_BYTES
_FOREVER_S = 1e9


def bytes_of(array):
    return array.reshape(-1).view(numpy.uint8)


def envelope_of(key, count, content=b""):
    envelope = numpy.zeros(ENVELOPE_BYTES, numpy.uint8)
    envelope[:HEAD_BYTES].view(numpy.int64)[:] = (*key, count)
    if len(content) > 0:
        envelope[HEAD_BYTES:HEAD_BYTES + len(content)] = numpy.frombuffer(content, numpy.uint8)
    return envelope


def notice_of(key, text):
    """The envelope of a message that says that its sender has given up the operation with this key."""
    text = text.encode()[:INLINE_BYTES]
    return envelope_of(key, -1 - len(text), text)


def operation_of(key):
    """Operations of groups have tags below zero, two each: some are done in two parts."""
    return key[0], key[1] // 2


def start_into(requests, start, memory):
    """Append the request that start(memory) gives. No bytecode runs between the two, and so no handler of a signal: what
    the library has begun is known here."""
    requests.extend(map(start, (memory,)))


def _room_of(count):
    return max(count, ENVELOPE_BYTES)


class _Message:
    """One that comes, or is here and kept."""

    def __init__(self):
        self.envelope = numpy.empty(ENVELOPE_BYTES, numpy.uint8)
        self.requests = []  # for its envelope, then for its bytes where they are not in there
        self.key = self.count = None  # what the envelope says
        self.memory = self._receiving = None
        self.is_whole = False

    @property
    def receiving(self):
        """The receive that has claimed it; None: it is kept until one does."""
        receiving = self._receiving
        return receiving if receiving is not None and receiving.message is self else None

    @property
    def is_open(self):
        """A failure from here on is one of this message."""
        return self.memory is not None and (self._receiving is None or self._receiving.message is self)

    def read_head(self):
        group, tag, self.count = (int(each) for each in self.envelope[:HEAD_BYTES].view(numpy.int64))
        self.key = (group, tag)

    def content(self):
        """The bytes that are in the envelope."""
        return self.envelope[HEAD_BYTES:HEAD_BYTES + (self.count if self.count >= 0 else -1 - self.count)]

    def open(self, receiving):
        """It is that receive's, or it is to be kept."""
        self.memory = None
        self._receiving = receiving
        if self.count <= INLINE_BYTES:
            self.memory = self.content()
        elif receiving is not None and len(receiving.bytes) == self.count:
            self.memory = receiving.bytes
        else:
            self.memory = numpy.empty(self.count, numpy.uint8)
        if receiving is not None:
            receiving.message = self

    def claim(self, receiving):
        self._receiving = receiving
        receiving.message = self

    def let_go(self):
        """It and its receive, which may have large arrays, do not wait for the collector of cycles."""
        self._receiving = None

    def hand_over(self, rank):
        """Give its bytes to the receive that has claimed it."""
        receiving = self.receiving
        receiving.rank = rank
        if receiving.done:
            return
        error = None
        if len(receiving.bytes) != len(self.memory):
            error = ValueError(f"the message of rank {rank} has {len(self.memory)} bytes, and the tensor {len(receiving.bytes)}")
        elif self.memory is not receiving.bytes:
            receiving.bytes[:] = self.memory
        receiving.end(error)


class Inbox:
    """Messages from one rank. Nothing more is read while those that nobody has asked for count kept_bytes_max."""

    def __init__(self, strategy, rank, kept_bytes_max):
        self.strategy, self.rank, self.kept_bytes_max = strategy, rank, kept_bytes_max
        self.awaited = []  # receives, in the order in which they were asked for
        self.messages = []  # in the order in which they come; all but the last are whole
        self.given_up = {}  # operations that the rank has given up: why
        self.is_listening = False  # messages are read though no receive is open
        self._kept_bytes = 0  # what messages without a receive count; None: it is to be counted

    @property
    def waiting(self):
        """Receives that no message has been found for."""
        return [each for each in self.awaited if each.message is None]

    @property
    def coming(self):
        """The message that is on its way; None: none has been asked for."""
        return self.messages[-1] if self.messages and not self.messages[-1].is_whole else None

    @property
    def is_half_read(self):
        """An envelope is here, and its message comes."""
        coming = self.coming
        return coming is not None and coming.is_open

    @property
    def is_reading(self):
        coming = self.coming
        return coming is not None and bool(coming.requests) and (coming.key is None or coming.is_open)

    @property
    def is_active(self):
        """A look may find something."""
        return bool(self.awaited) or self.is_listening or (bool(self.messages) and not self._is_kept(self.messages[-1]))

    @property
    def is_full(self):
        """What comes next has no room, and nobody awaits it."""
        coming = self.coming
        if coming is None or coming.key is None or coming.is_open:
            return False
        return not self._has_room(coming.count) and all(each.key != coming.key for each in self.waiting)

    def error_of_full(self, receiving):
        coming = self.coming
        tags = ", ".join(str(tag) for tag in sorted({each.key[1] for each in self.messages if self._is_kept(each)}))
        awaited = "an operation of a group" if receiving.key[1] < 0 else f"recv with tag {receiving.key[1]}"
        return muster.ResourceExhausted(
            f"{awaited} waits for rank {self.rank}, whose next message has tag {coming.key[1]} and {coming.count} bytes: messages "
            f"that nobody has received may have {self.kept_bytes_max} bytes, and {self._count_kept()} are in use; receive tag "
            f"{tags or coming.key[1]} first")

    def error_of(self, key):
        """The error that ends the operation with this key, if the rank has given it up; None: it has not."""
        why = self.given_up.get(operation_of(key)) if self.given_up and key[1] < 0 else None
        return None if why is None else muster.Aborted(f"rank {self.rank} has given up this operation of a group: {why}")

    def forget_given_up(self, key):
        """The operation with this key is the oldest that may still be asked for."""
        group, oldest = operation_of(key)
        self.given_up = {each: why for each, why in self.given_up.items() if each[0] != group or each[1] <= oldest}

    def look(self):
        """Go on by one step. Returns whether there was one."""
        try:
            if self._hand_over() or self._lose_given_up():
                return True
            if self.coming is None and (self.waiting or self.is_listening):
                self.messages.append(_Message())
            coming = self.coming
            return coming is not None and self._go_on(coming)
        except BaseException:
            self._kept_bytes = None
            raise

    def end(self):
        """Nothing more is read. Returns the requests that still have to end."""
        coming = self.coming
        if coming is None:
            return []
        if coming.key is not None and not coming.is_open:  # its sender waits until somebody reads its bytes
            coming.open(None)
            if coming.count > INLINE_BYTES:
                self._start(coming, coming.memory)
        self.messages.remove(coming)
        ending = [each for each in coming.requests if not each.done]
        for each in ending:
            each.cancel()
        return ending

    # --- what nobody has asked for ---

    @staticmethod
    def _is_kept(message):
        return message.is_whole and message.receiving is None

    def _count_kept(self):
        if self._kept_bytes is None:
            self._kept_bytes = sum(_room_of(each.count) for each in self.messages if each.is_open and each.receiving is None)
        return self._kept_bytes

    def _has_room(self, count):
        return self._count_kept() + _room_of(count) <= self.kept_bytes_max

    def _hand_over(self):
        """One message that is here, to the receive that waits for it."""
        waiting = self.waiting
        for message in self.messages if self.awaited else self.messages[-1:]:
            if message.is_whole and (message.receiving is not None or self._claim_kept(message, waiting)):
                message.hand_over(self.rank)
                message.receiving.forget()
                self._remove(message)
                return True
        return False

    def _remove(self, message):
        self.messages.remove(message)
        message.let_go()

    def _claim_kept(self, message, waiting):
        receiving = next((each for each in waiting if each.key == message.key), None)
        if receiving is None:
            return False
        message.claim(receiving)
        self._kept_bytes = self._count_kept() if self._kept_bytes is None else self._kept_bytes - _room_of(message.count)
        return True

    def _lose_given_up(self):
        for each in self.waiting if self.given_up else ():
            error = self.error_of(each.key)
            if error is not None:
                self._lose(each, error)
                return True
        return False

    def _lose(self, receiving, error):
        receiving.lose(self.rank, error)
        self.awaited.remove(receiving)

    # --- the message that comes ---

    def _go_on(self, message):
        if not message.requests:  # whoever waits has a deadline: a read that ended would take the next message with it
            return self._begin(message, message.envelope, timeout=_FOREVER_S)
        if not message.requests[-1].done:
            return False
        try:
            message.requests[-1].wait()
        except muster.Error as error:
            self._fail(message, error)
            return True
        if not message.is_open:
            return self._open(message)
        if message.count > INLINE_BYTES and len(message.requests) == 1:
            return self._begin(message, message.memory)
        message.is_whole = True
        message.requests = []
        return True

    def _start(self, message, memory, **words):
        start_into(message.requests, functools.partial(self.strategy.start, "receive", None, rank=self.rank, **words), memory)

    def _begin(self, message, memory, **words):
        try:
            self._start(message, memory, **words)
        except muster.ResourceExhausted:  # nothing has happened
            raise
        except muster.Error as error:
            self._fail(message, error)
            return True
        return message.requests[-1].done

    def _open(self, message):
        message.read_head()
        if message.count < 0:
            self._take_notice(message)
            return True
        receiving = next((each for each in self.waiting if each.key == message.key), None)
        if receiving is None and not self._has_room(message.count):
            self._end_operations()
            return False
        message.open(receiving)
        if receiving is None:
            self._kept_bytes += _room_of(message.count)
        return True

    def _take_notice(self, message):
        self.given_up[operation_of(message.key)] = bytes(message.content()).decode(errors="replace")
        self.messages.remove(message)

    def _end_operations(self):
        """End the operations of groups that wait for this rank: the program is inside of one, and receives nothing."""
        for each in self.waiting:
            if each.key[1] < 0:
                each.end(self.error_of_full(each))
                each.forget()

    def _fail(self, message, error):
        """The sender has given this message up: the next look reads on. Or it has gone: then that read fails at once."""
        receiving = message.receiving
        if receiving is not None:
            if isinstance(error, muster.Mismatch):  # see Mail._mend: the envelope has told how much comes
                error = muster.Aborted(f"rank {self.rank} could not send the rest of this message")
            receiving.end(error)
            receiving.forget()
        elif not message.requests or not (message.is_open or isinstance(error, muster.Aborted)):
            self.is_listening = False
            for each in self.waiting:
                self._lose(each, error)
        elif message.is_open:
            self._kept_bytes = None
        self._remove(message)
