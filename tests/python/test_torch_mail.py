"""Messages of the c10d backend whose sender gives them up or dies: the strategy is one of this file, so that both come at each place."""
# Needs: torch
import dis
import gc
import sys
import weakref

import numpy
import pytest

import muster
from muster.torch import inbox as inbox_module, mail as mail_module
from muster.torch.inbox import notice_of
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

    def start(self, kind, input=None, output=None, rank=None, timeout=None):
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


def kept_by(mail):
    return sum(each.count for inbox in mail._inboxes.values() for each in inbox.messages if each.is_whole)


def awaited_by(mail):
    return [each for inbox in mail._inboxes.values() for each in inbox.waiting]


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

    def start(self, kind, input=None, output=None, rank=None, timeout=None):
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

    assert strategy.cancelled == 1 and not awaited_by(mail)


def test_a_message_that_does_not_come_ends_its_receive_in_time(monkeypatch):
    monkeypatch.setattr("muster.torch.mail.WAIT_S", 0)
    monkeypatch.setattr(SilentAndDead, "poll", lambda self: None)
    mail = Mail(SilentAndDead())

    with pytest.raises(muster.DeadlineExceeded, match="no message with tag 1 has come in 0 s"):
        mail.receive(1, KEY, numpy.zeros(3)).wait()
    assert not mail.is_awaited

    with pytest.raises(muster.DeadlineExceeded, match="tag 2"):
        mail.exchange(OTHER, {}, {1: numpy.zeros(3), 2: numpy.zeros(3)})
    assert mail.is_awaited  # what was sent for it is read beside other operations


def test_an_envelope_is_read_without_a_deadline_and_its_content_with_one():
    timeouts = []
    strategy = Sender(envelope(KEY, large), large.view(numpy.uint8))
    start = strategy.start
    strategy.start = lambda *args, timeout=None, **words: timeouts.append(timeout) or start(*args, **words)

    Mail(strategy).receive(1, KEY, numpy.zeros(LARGE)).wait()

    assert timeouts[0] > 1e8 and timeouts[1] is None


class Starter:
    """The strategy of a sender: each start is noted, and one of them raises."""

    def __init__(self, fails_at, is_received):
        self.fails_at, self.is_received, self.started = fails_at, is_received, []

    def start(self, kind, input=None, output=None, rank=None, timeout=None):
        assert kind == "send"
        if len(self.started) == self.fails_at:
            self.fails_at = None
            raise MemoryError
        self.started.append(Sent(input, self.is_received))
        return self.started[-1]

    def poll(self):
        pass


class Sent(Request):
    def __init__(self, array, is_received):
        super().__init__(is_received)
        self.bytes, self.is_cancelled = array.nbytes, False

    def cancel(self):
        self.is_cancelled = True
        if not self.done:
            self.done, self.error = True, muster.Cancelled("it is given up")


def test_an_envelope_whose_message_cannot_be_started_is_given_up():
    strategy = Starter(1, is_received=False)
    mail = Mail(strategy)

    with pytest.raises(MemoryError):
        mail.send(1, KEY, large)
    mail.send(1, OTHER, small)

    assert [(each.bytes, each.is_cancelled) for each in strategy.started] == [(256, True), (256, False)]


def test_what_a_received_envelope_promised_is_broken_off_before_the_next_message():
    strategy = Starter(1, is_received=True)
    mail = Mail(strategy)

    with pytest.raises(MemoryError):
        mail.send(1, KEY, large)
    mail.send(2, OTHER, small)
    mail.send(1, OTHER, small)
    mail.send(1, OTHER, small)

    assert [each.bytes for each in strategy.started] == [256, 256, 1, 256, 256]


def test_what_a_received_envelope_promised_is_broken_off_at_close():
    strategy = Starter(1, is_received=True)
    mail = Mail(strategy)

    with pytest.raises(MemoryError):
        mail.send(1, KEY, large)
    mail.close()

    assert [each.bytes for each in strategy.started] == [256, 1]


def test_a_message_that_is_broken_off_ends_its_own_receive():
    class Broken(Sender):
        def start(self, kind, input=None, output=None, rank=None, timeout=None):
            request = super().start(kind, input, output, rank)
            if len(output) == 8 * LARGE:
                request.error = muster.Mismatch("it sends u8 x 1")
            return request
    mail = Mail(Broken(envelope(OTHER, large), numpy.zeros(8 * LARGE, numpy.uint8), envelope(KEY, large), numpy.zeros(8 * LARGE, numpy.uint8),
                       envelope(OTHER, small)))
    first = mail.receive(1, KEY, numpy.zeros(LARGE))
    while mail.go_on():    # nobody awaits the first message
        pass
    second = mail.receive(1, OTHER, numpy.zeros(3))

    second.wait()
    with pytest.raises(muster.Aborted, match="rank 1 could not send the rest"):
        first.wait()




def test_what_nobody_has_asked_for_is_kept_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(mail_module, "KEPT_BYTES_MAX", 2000)
    parts = [each for _ in range(3) for each in (envelope(OTHER, large), large.view(numpy.uint8))]
    mail = Mail(Sender(*parts, envelope(KEY, small)))
    receiving = mail.receive(1, KEY, numpy.zeros(3))

    with pytest.raises(muster.ResourceExhausted, match="waits for rank 1, whose next message has tag 2 and 800 bytes: .* 1600 are in use; receive tag 2 first"):
        receiving.wait()
    assert kept_by(mail) == 1600 and not mail.is_awaited
    with pytest.raises(muster.ResourceExhausted):
        receiving.wait()

    outputs = [numpy.zeros(LARGE) for _ in range(3)]
    for output in outputs:    # in the order in which they were sent
        mail.receive(1, OTHER, output).wait()
    last = numpy.zeros(3)
    mail.receive(1, KEY, last).wait()
    assert all((output == large).all() for output in outputs) and (last == small).all() and kept_by(mail) == 0


def test_an_operation_of_a_group_that_would_wait_for_ever_says_so(monkeypatch):
    monkeypatch.setattr(mail_module, "KEPT_BYTES_MAX", 1000)
    class Silent(Sender):
        def start(self, kind, input=None, output=None, rank=None, timeout=None):
            return super().start(kind, input, output, rank) if rank == 1 else Request(False)
        def poll(self):
            raise AssertionError("a wait for what never comes")
    mail = Mail(Silent(*[envelope(OTHER, small)] * 4, envelope((0, -1), small)))

    with pytest.raises(muster.ResourceExhausted, match="an operation of a group .* 768 are in use; receive tag 2"):
        mail.exchange((0, -1), {}, {1: numpy.zeros(3), 2: numpy.zeros(3)})
    assert not awaited_by(mail)


def test_small_messages_are_bounded_as_well(monkeypatch):
    monkeypatch.setattr(mail_module, "KEPT_BYTES_MAX", 1000)
    mail = Mail(Sender(*[envelope(OTHER, small)] * 4, envelope(KEY, small)))

    with pytest.raises(muster.ResourceExhausted, match="768 are in use"):
        mail.receive(1, KEY, numpy.zeros(3)).wait()
    for _ in range(4):
        mail.receive(1, OTHER, numpy.zeros(3)).wait()
    mail.receive(1, KEY, numpy.zeros(3)).wait()


def test_a_receive_of_what_is_taken_makes_room_for_one_that_waits(monkeypatch):
    monkeypatch.setattr(mail_module, "KEPT_BYTES_MAX", 1000)
    mail = Mail(Sender(envelope(OTHER, large), large.view(numpy.uint8), envelope(OTHER, large), large.view(numpy.uint8), envelope(KEY, small)))
    waiting = mail.receive(1, KEY, numpy.zeros(3))

    mail.go_on()
    assert not waiting.done and kept_by(mail) == 800
    mail.receive(1, OTHER, numpy.zeros(LARGE)).wait()

    waiting.wait()
    assert kept_by(mail) == 800


def test_what_has_no_room_is_given_up_at_close(monkeypatch):
    monkeypatch.setattr(mail_module, "KEPT_BYTES_MAX", 100)
    class Cancelled(Request):
        def cancel(self):
            self.done = True
    class Receiver(Sender):
        bodies = []
        def start(self, kind, input=None, output=None, rank=None, timeout=None):
            if len(output) == 8 * LARGE:
                self.bodies.append(Cancelled(False))
                return self.bodies[-1]
            return super().start(kind, input, output, rank)
        def poll(self):
            pass
    mail = Mail(Receiver(envelope(OTHER, large)))
    with pytest.raises(muster.ResourceExhausted, match="may have 100 bytes, and 0 are in use; receive tag 2 first"):
        mail.receive(1, KEY, numpy.zeros(3)).wait()

    mail.close()

    assert [each.done for each in Receiver.bodies] == [True]


def test_a_failed_send_holds_up_nobody(job):
    run = job("""
import muster.torch.backend as backend, torch, torch.distributed as dist
backend.init_process_group()
strategy = backend._strategy
class Failing:
    count = 0
    def __getattr__(self, name):
        return getattr(strategy, name)
    def start(self, kind, *args, **words):
        self.count += 1
        if self.count == 2:
            wait_for("asked")
            raise MemoryError
        return strategy.start(kind, *args, **words)
first, second = torch.zeros(1000), torch.zeros(1000)
if dist.get_rank() == 0:
    backend._everyone.mail.strategy = Failing()
    try:
        dist.send(torch.ones(1000), 1, tag=1)
        assert False
    except MemoryError:
        pass
    dist.send(torch.full((1000,), 2.0), 1, tag=2)
else:
    work = dist.irecv(first, 0, tag=1)
    while not backend._everyone.mail.inbox(0).is_half_read:    # until it has the envelope
        backend._everyone.mail.go_on()
    open("asked", "w").close()
    dist.recv(second, 0, tag=2)
    assert (second == 2).all()
    try:
        work.wait()
        assert False
    except muster.Aborted as error:
        assert "could not send the rest" in str(error), error
x = torch.ones(1)
dist.all_reduce(x)
dist.destroy_process_group()
say("done", x.item())
""", 2)
    run.end()
    assert [words for _, _, words in run.said()] == [["done", "2.0"]] * 2


class Senders:
    """Several members, each as a Sender; what they do is done at once."""

    def __init__(self, **parts):
        self.senders = {int(name[1:]): Sender(*each) for name, each in parts.items()}

    def start(self, kind, input=None, output=None, rank=None, timeout=None):
        sender = self.senders[rank]
        if not sender.parts:
            return Request(False)    # nothing comes, and it lives
        return sender.start(kind, input, output, rank)

    def poll(self):
        raise AssertionError("a wait for what never comes")


def test_what_has_been_received_is_free_without_the_collector():
    mail, freed = Mail(Sender(envelope(KEY, large), large.view(numpy.uint8))), []
    class Array(numpy.ndarray):
        pass
    array = numpy.zeros(LARGE).view(Array)
    weakref.finalize(array, freed.append, KEY)
    gc.disable()
    try:
        receiving = mail.receive(1, KEY, array)
        receiving.wait()
        del receiving, array
    finally:
        gc.enable()

    assert freed == [KEY]


# --- Errors and signals at any place ---

@pytest.mark.parametrize("key, count", [(OTHER, 1), (KEY, 1), (KEY, 2)])
def test_without_memory_the_place_in_the_stream_is_kept(monkeypatch, key, count):
    """The first message is the one that is awaited, or has to be kept; its reading fails at each place once."""
    mail = Mail(Sender(envelope(key, large), large.view(numpy.uint8), envelope(KEY, small), envelope((0, 3), small)))
    empty, left = numpy.empty, [count]
    def failing(*args):
        left[0] -= 1
        if left[0] == 0:
            raise MemoryError
        return empty(*args)
    monkeypatch.setattr(inbox_module.numpy, "empty", failing)
    receiving = None

    with pytest.raises(MemoryError):
        receiving = mail.receive(1, (0, 3), numpy.zeros(3))
        receiving.wait()

    first, second, third = numpy.zeros(LARGE), numpy.zeros(3), numpy.zeros(3)
    mail.receive(1, key, first).wait()
    mail.receive(1, KEY, second).wait()
    mail.receive(1, (0, 3), third).wait()
    assert (first == large).all() and (second == small).all() and (third == small).all()


def test_a_read_that_cannot_start_is_started_by_the_next_look():
    class Full(Sender):
        fails = 1
        def start(self, *args, **words):
            self.fails -= 1
            if self.fails == 0:
                raise muster.ResourceExhausted("1024 requests are open")
            return super().start(*args, **words)
    for place in (1, 2, 3):
        strategy = Full(envelope(KEY, large), large.view(numpy.uint8), envelope(OTHER, small))
        mail, output = Mail(strategy), numpy.zeros(3)
        strategy.fails = place
        with pytest.raises(muster.ResourceExhausted, match="1024"):
            mail.receive(1, OTHER, output).wait()

        mail.receive(1, OTHER, output).wait()
        assert (output == small).all() and kept_by(mail) == 8 * LARGE


class Interrupt(BaseException):
    """What a handler of a signal may raise: Python runs it behind calls, at jumps back and at the begin of functions."""


def interrupted_at(place, call):
    """Run the call, with an Interrupt at the place-th such instruction of the mail. Returns whether there are as many."""
    count, instructions = 0, {}
    def trace(frame, event, argument):
        nonlocal count
        if not frame.f_code.co_filename.endswith(("torch/mail.py", "torch/inbox.py")):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            last = instructions.get(frame, "RESUME")
            instructions[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if last.startswith(("CALL", "PRECALL", "RESUME", "JUMP_BACKWARD")):
                count += 1
                if count == place:
                    raise Interrupt
        return trace
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interrupt:
        pass
    finally:
        sys.settrace(before)
    return count >= place


def test_a_receive_that_is_interrupted_anywhere_loses_nothing():
    """What it was for may be in its array, though it has not returned."""
    def receive(mail, key, array, value):
        try:
            mail.receive(1, key, array).wait()
        except muster.Aborted:
            pass    # the message went to the one that was interrupted
        assert (array == value).all(), key

    place = 0
    while True:
        place += 1
        mail = Mail(Sender(envelope(OTHER, small), envelope((0, 4), large), large.view(numpy.uint8), envelope(KEY, 2 * large),
                           (2 * large).view(numpy.uint8), envelope((0, 3), small), is_late=True))
        kept, awaited, last = numpy.zeros(LARGE), numpy.zeros(LARGE), numpy.zeros(3)
        open_one = mail.receive(1, OTHER, numpy.zeros(3))
        if not interrupted_at(place, lambda: mail.receive(1, KEY, awaited).wait()):
            break
        open_one.wait()
        assert (open_one.bytes.view(numpy.float64) == 7).all()
        receive(mail, (0, 4), kept, 8)
        receive(mail, KEY, awaited, 16)
        receive(mail, (0, 3), last, 7)
        assert not mail.is_awaited
    assert place > 100


def test_a_send_that_is_interrupted_anywhere_is_whole_or_broken_off():
    place = 0
    while True:
        place += 1
        strategy = Starter(None, is_received=True)
        mail = Mail(strategy)
        if not interrupted_at(place, lambda: mail.send(1, KEY, large)):
            break
        mail.send(1, OTHER, small).wait()
        mail.send(1, KEY, large).wait()
        mail.close()
        assert [each.bytes for each in strategy.started] in (
            [256, 256, 800], [256, 1, 256, 256, 800], [256, 800, 256, 256, 800]), place
    assert place > 15


# --- Operations of groups that a member has given up ---

OPERATION = (0, -2)    # and (0, -1), its second part


class Deaf(Senders):
    """Nobody receives what is sent, and the members may say why."""

    def start(self, kind, input=None, output=None, rank=None, timeout=None):
        if kind == "receive":
            return super().start(kind, input, output, rank)
        request = Request(False)
        request.cancel = lambda: None
        return request

    def poll(self):
        pass


def test_a_send_to_a_member_that_has_given_up_ends_with_its_reason():
    mail = Mail(Deaf(r1=[envelope(OTHER, small), notice_of(OPERATION, "MemoryError: no room")], r2=[]))

    with pytest.raises(muster.Aborted, match="rank 1 has given up this operation of a group: MemoryError: no room"):
        mail.exchange(OPERATION, {1: small, 2: small}, {})

    output = numpy.zeros(3)
    mail.receive(1, OTHER, output).wait()    # what came before it is kept
    assert (output == small).all() and not any(each.is_listening for each in mail._inboxes.values())


@pytest.mark.parametrize("key", [OPERATION, (0, -1)])
def test_a_receive_from_a_member_that_has_given_up_ends_with_its_reason(key):
    mail = Mail(Senders(r1=[notice_of(OPERATION, "ValueError: wrong")], r2=[envelope(key, small)]))

    with pytest.raises(muster.Aborted, match="rank 1 has .*: ValueError: wrong"):
        mail.exchange(key, {}, {2: numpy.zeros(3), 1: numpy.zeros(3)})


def test_a_notice_is_of_one_operation():
    after, other_group = (0, -4), (1, -2)
    parts = [notice_of((0, -6), "later"), notice_of(OPERATION, "now"), envelope(after, small), envelope(other_group, small)]
    mail = Mail(Senders(r1=parts))
    for key in (after, other_group):
        output = numpy.zeros(3)
        mail.exchange(key, {}, {1: output})
        assert (output == small).all()

    mail.begin_operation(after, [1])
    assert list(mail.inbox(1).given_up.values()) == ["later"]
    with pytest.raises(muster.Aborted, match="later"):    # it was given up there before it began here
        mail.exchange((0, -6), {}, {1: numpy.zeros(3)})


def test_notices_that_nobody_reads_are_bounded_and_end_at_close():
    strategy = Starter(None, is_received=False)
    mail = Mail(strategy)

    for count in range(1, 100):
        mail.tell_given_up((0, -2 * count), [1, 2], MemoryError("x" * 1000))
    mail.close()

    assert [(each.bytes, each.is_cancelled) for each in strategy.started] == [(256, True)] * 32


@pytest.mark.parametrize("ranks, kept", [(64, 4), (300, 1)])
def test_notices_to_many_ranks_leave_requests_to_the_program(ranks, kept):
    strategy = Starter(None, is_received=False)
    mail = Mail(strategy)

    for count in range(1, 20):
        mail.tell_given_up((0, -2 * count), range(1, ranks + 1), MemoryError())

    assert len(strategy.started) == ranks * kept


def test_an_operation_that_fails_at_one_member_ends_at_the_others(job):
    run = job("""
import muster.torch.backend as backend, torch, torch.distributed as dist
backend.init_process_group()
rank, three = dist.get_rank(), dist.new_group([0, 1, 2])
if rank < 3:
    dist.barrier(group=three)
    mail = backend._everyone.mail
    plain = mail.exchange
    def failing(*args):
        mail.exchange = plain
        raise MemoryError("no room")
    if rank == 0:
        mail.exchange = failing
    for call in (lambda: dist.reduce(torch.ones(100000), 0, group=three), lambda: dist.all_reduce(torch.ones(100000), group=three)):
        try:
            call()
            assert False
        except MemoryError:
            assert rank == 0
            for each in (1, 2):    # no call of the library meanwhile
                wait_for(f"told.{each}")
                os.remove(f"told.{each}")
            mail.exchange = failing
        except muster.Aborted as error:
            assert "rank 0 has given up this operation of a group: MemoryError: no room" in str(error), error
            open(f"told.{rank}", "w").close()
            while os.path.exists(f"told.{rank}"):
                time.sleep(0.01)
    mail.exchange = plain
    x = torch.full((100000,), rank + 1.0)
    dist.all_reduce(x, group=three)
    assert (x == 6).all()
dist.barrier()
dist.destroy_process_group()
say("done")
""", 4)
    run.end()
    assert [words for _, _, words in run.said()] == [["done"]] * 4


# --- From any rank ---

def test_the_first_message_with_the_key_is_taken_from_whoever_sends_it():
    mail = Mail(Senders(r1=[envelope(OTHER, small)], r2=[envelope(KEY, large), large.view(numpy.uint8)], r3=[envelope(KEY, small)]))
    output, second, third = numpy.zeros(LARGE), numpy.zeros(3), numpy.zeros(3)

    receiving = mail.receive_any([1, 2, 3], KEY, output)
    receiving.wait()
    assert receiving.rank == 2 and (output == large).all() and not mail.is_awaited
    mail.receive(1, OTHER, second).wait()
    any_third = mail.receive_any([1, 2, 3], KEY, third)
    any_third.wait()
    assert any_third.rank == 3 and (second == small).all() and (third == small).all()


def test_a_death_of_one_of_several_senders_is_no_error():
    class OneIsDead(Senders):
        def start(self, kind, input=None, output=None, rank=None, timeout=None):
            if rank == 1:
                raise muster.Aborted("it is dead")
            return super().start(kind, input, output, rank)
    mail = Mail(OneIsDead(r2=[envelope(KEY, small)]))
    receiving = mail.receive_any([1, 2], KEY, numpy.zeros(3))

    receiving.wait()
    assert receiving.rank == 2
    with pytest.raises(muster.Aborted, match="dead"):
        mail.receive_any([1], KEY, numpy.zeros(3)).wait()


def test_a_receive_from_any_ends_when_all_are_gone():
    mail = Mail(Sender())

    with pytest.raises(muster.Aborted, match="dead"):
        mail.receive_any([1, 2, 3], KEY, numpy.zeros(3)).wait()
    assert not mail.is_awaited


def test_a_receive_from_any_is_forgotten_by_all(monkeypatch):
    monkeypatch.setattr(mail_module, "KEPT_BYTES_MAX", 100)
    mail = Mail(Senders(r1=[envelope(OTHER, small)], r2=[envelope(OTHER, small)]))

    with pytest.raises(muster.ResourceExhausted, match="recv with tag 1 waits for rank 1"):
        mail.receive_any([1, 2], KEY, numpy.zeros(3)).wait()
    assert not mail.is_awaited


def test_recv_without_a_source_gives_the_rank(job):
    run = job("""
import muster.torch.backend as backend, torch, torch.distributed as dist
backend.init_process_group()
rank = dist.get_rank()
x, seen = torch.zeros(1000), []
for _ in range(2):    # in any order
    if rank == 0:
        seen += [(source := dist.recv(x, tag=4), x[0].item() == source, x[999].item() == source) for _ in range(3)]
    else:
        dist.send(torch.full((1000,), float(rank)), 0, tag=4)
assert rank != 0 or sorted(seen) == [(source, True, True) for source in (1, 1, 2, 2, 3, 3)], seen
group, small = dist.new_group([3, 1], sort_ranks=False), torch.zeros(2, 2)
if rank == 1:
    assert dist.recv(small.t(), group=group, tag=7) == 3 and (small == 5).all()    # ranks of all, also in a group
    work = dist.irecv(small, group=group)
    work.wait()
    assert work._source_rank() == 0 and (small == 6).all()
elif rank == 3:
    dist.send(torch.full((2, 2), 5.0), 1, group=group, tag=7)
    dist.send(torch.full((2, 2), 6.0), 1, group=group)
alone = dist.new_group([2])
if rank == 2:
    try:
        dist.recv(x, group=alone)
        assert False
    except ValueError as error:
        assert "another member" in str(error), error
dist.barrier()
dist.destroy_process_group()
say("done")
""", 4)
    run.end()
    assert [words for _, _, words in run.said()] == [["done"]] * 4
