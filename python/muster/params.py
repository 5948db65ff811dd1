"""Parameter exchange: tables of rows, or tensors, that servers hold; a server that is killed loses and doubles nothing.

    client = muster.params.Client("127.0.0.1:7300")
    table = client.table("counters", row_elements=1, optimizer="add")
    table.push([1, 2], numpy.ones((2, 1), numpy.float32))
    print(table.pull([1, 2]))

`muster params serve` starts a server. docs/params.md says what it promises; include/muster/params.h has the errors. Each
call but the two named start waits until the server has answered. A client reconnects by itself, and a push is applied
once.
"""

import atexit
import contextlib
import operator
import os
import weakref

import numpy

from muster import _muster
from muster._muster import RoundOver
from muster.arrays import NUMPY_TYPES, memory_of, with_peer_names

CLOCK_DONE = 2**64 - 1  # the clock of a source that is done: nobody waits for it any more
_open = weakref.WeakSet()


@atexit.register
def _close_all():
    """Before the interpreter and its threads are gone."""
    for client in list(_open):
        with contextlib.suppress(_muster.Error):  # pushes that are not acknowledged
            client.close(timeout=0)


def _array(values):
    return memory_of(values)[0]


def _keys(keys):
    keys = _array(keys)
    if hasattr(keys, "dtype"):
        return keys
    array = numpy.asarray(keys)
    if array.dtype.kind not in "iu":  # NumPy would cut 1.5 to 1
        array = numpy.array([operator.index(key) for key in keys], object)
    if array.size > 0 and array.min() < 0:
        raise OverflowError(f"a key must be a number from 0 to 2^64 - 1, got {array.min()}")
    return array.astype(numpy.uint64, copy=False)


class Client(_muster.ParamsClient):
    """A client of the servers of one job, at "HOST:PORT" or several of these with commas between them.

    source is a name that keeps this worker's position across processes: started again under it, it goes on, and the
    older process is refused with muster.Aborted. clock_sources says how many sources tick; 0: this one does not.
    Threads may share a client: their calls wait for one another. As a context it closes itself.

    tls: connections are under TLS, and the server's certificate is checked against the authorities of the system, or
    those in the PEM file tls_ca. tls_cert and tls_key are PEM files with this client's certificate and its key, for a
    server that demands one. tls_peer_names: a pattern ("*.params.example"), or a list, of which the server's certificate
    must have a name, in place of the one that was dialled. Each of these implies tls. muster.NotFound names a file that is not there;
    muster.Unauthenticated says why a side refuses the other.
    """

    def __new__(cls, *args, **words):
        self = super().__new__(cls, *args, **with_peer_names(words))
        _open.add(self)
        return self

    def table(self, name, row_elements, **words):
        """Open a table, or make it.

        dtype is that of values in pushes and pulls: "f32", "f16" or "bf16" (16 bits, or PyTorch tensors). optimizer
        says how a push changes a row: "add", "assign", "max", "sgd", "momentum", "nesterov", "adagrad", "row_adagrad",
        "adam", "ftrl" or "clock_sum", with learning_rate, beta1, beta2, epsilon, l1 and l2. New rows have the values of
        init: "zero", "constant", "uniform" or "normal", with init_scale and init_seed. elements makes it one tensor in
        blocks of row_elements. by_round, round_mean, round_quorum, round_grace and round_carried: docs/params.md,
        "Rounds". admit_after, admit_share, ttl_clocks, rows_max and evict: which keys have rows.
        """
        return Table(super().table(name, row_elements, **words))

    def cut(self, folder, clock=0, timeout=30):
        """Save all tables to a folder that is there, while pushes go on; `muster params serve --restore FOLDER` begins
        with it. clock: between the steps of workers that tick. Gives its number, clock, rows, bytes and more."""
        return super().cut(_folder(folder), clock, timeout)

    def start(self, kind, *, folder=None, clock=0, weight=1.0, timeout=30):
        """Start a "tick" (with clock and weight) or a "cut" (with folder and clock), and return a Request for it, which
        has the blocking call's result and errors.

        Pushes that were started before a tick count in the step that it completes. A pull with its min_clock waits for
        the ticks of all sources, also for one of this client that has only been started. A client has one cut at a
        time."""
        return Request(super().start(kind, None if folder is None else _folder(folder), clock, weight, timeout), None)

    def close(self, timeout=30):
        """Wait until all pushes are acknowledged, and disconnect. Tables of the client end with it."""
        try:
            super().close(timeout)
        finally:
            _open.discard(self)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close(timeout=30 if kind is None else 0)
        return False


def _folder(path):
    """The same for the servers, which have working directories of their own."""
    path = os.fspath(path)
    return os.path.abspath(path) if path else path


class Table:
    """Rows of a client, or one tensor: arrays of NumPy and tensors of PyTorch go in and out of their own memory.

    Keys are 64-bit integers. Values are contiguous, of the table's dtype; row_elements of them for each key.
    """

    def __init__(self, table):
        self._table = table
        self.name, self.dtype, self.row_elements, self.elements = table.name, table.dtype, table.row_elements, table.elements

    @property
    def round(self):
        """The open round, as far as this client knows; a push whose round is closed raises muster.params.RoundOver."""
        return self._table.round

    def push(self, keys, values, timeout=30):
        """Give gradients or values to rows: applied once, also when a server dies. After DeadlineExceeded it may count."""
        self._table.push(_keys(keys), _array(values), timeout)

    def pull(self, keys, values=None, min_clock=0, timeout=30):
        """Rows, into values or a new array: as they are when all sources have completed min_clock steps."""
        keys = _keys(keys)
        values = self._empty(len(keys)) if values is None else values
        self._table.pull(keys, _array(values), min_clock, timeout)
        return values

    def push_pull(self, keys, values, answer=None, timeout=30):
        """Push, and get the rows as they are after the push, into answer (which may be values) or a new array."""
        keys = _keys(keys)
        if answer is values:
            memory = answer_memory = _array(values)
        else:
            answer = self._empty(len(keys)) if answer is None else answer
            memory, answer_memory = _array(values), _array(answer)
        self._table.push_pull(keys, memory, answer_memory, timeout)
        return answer

    def peek(self, keys, values=None):
        """Rows of servers of this host, read from their memory without a message, into values or a new array; with all
        pushes of this client. None where that cannot be, the first time always: pull them."""
        keys = _keys(keys)
        values = self._empty(len(keys)) if values is None else values
        return values if self._table.peek(keys, _array(values)) else None

    def push_range(self, values, offset=0, timeout=30):
        """Push to a tensor's elements from offset on: whole blocks, or up to its end."""
        self._table.push_range(_array(values), offset, timeout)

    def pull_range(self, values=None, offset=0, min_clock=0, timeout=30):
        """A tensor's elements from offset on, into values or a new array of all the rest."""
        values = self._empty_range(offset) if values is None else values
        self._table.pull_range(_array(values), offset, min_clock, timeout)
        return values

    def start(self, kind, keys=None, values=None, answer=None, offset=0, min_clock=0, timeout=30):
        """Start an operation, and return a Request for it. kind is the name of the blocking call: "push", "pull",
        "push_pull" (with keys), "push_range" or "pull_range" (with offset), whose arguments and errors these are.

        Pushes are applied in the order of their starts, blocking calls included; a pull of rows has those before it, and
        perhaps later ones; operations on one tensor take effect in their order. The request has the arrays until it is
        done: they must not be written meanwhile, nor those read that are pulled into. A push that does not fit into the
        client's queue raises muster.ResourceExhausted here."""
        keys = None if keys is None else _keys(keys)
        if values is None and kind in ("pull", "pull_range"):
            values = self._empty_range(offset) if keys is None else self._empty(len(keys))
        if answer is None and kind == "push_pull":
            answer = self._empty(len(keys))
        answer = values if kind in ("pull", "pull_range") else answer
        memory = _array(values)
        answer_memory = memory if answer is values else None if answer is None else _array(answer)
        return Request(self._table.start(kind, keys, memory, answer_memory, offset, min_clock, timeout), answer)

    def _empty(self, count):
        return numpy.empty((count, self.row_elements), NUMPY_TYPES[self.dtype])

    def _empty_range(self, offset):
        return numpy.empty(self.elements - offset, NUMPY_TYPES[self.dtype])


class Request:
    """An operation that Table.start or Client.start has started. It goes on while the program computes."""

    def __init__(self, request, answer):
        self._request, self._answer = request, answer

    @property
    def kind(self):
        """"push", "pull", "tick", …"""
        return self._request.kind

    @property
    def done(self):
        """Whether it has ended: wait does not wait then."""
        return self._request.done

    def wait(self):
        """Wait until it has ended, and return what the blocking call would return; raises what that would raise. Ctrl-C
        cancels it."""
        result = self._request.wait()
        return self._answer if result is None else result

    def cancel(self):
        """It ends with muster.Cancelled, unless its answer is here. A push that has left may still be applied."""
        self._request.cancel()
