"""Publications: one process makes versions of a set of tensors, many processes use the newest one, whole.

    publisher = muster.publication.Publisher("weights", registry="127.0.0.1:2379")
    publisher.put({"layer1": weights})

    reader = muster.publication.Reader("weights", registry="127.0.0.1:2379")
    version = reader.take()
    print(version.number, version["layer1"])

`muster registry` starts the registry that knows the names. docs/publications.md says what it promises.
"""

import atexit
import collections.abc
import json
import weakref

import numpy

from muster import _muster
from muster.arrays import NUMPY_TYPES, memory_of, torch_of, with_peer_names

ALL = 2**32 - 1  # put(…, wait_readers=ALL): all readers that are connected
_SHAPES = "muster.shapes"
_open = weakref.WeakSet()


@atexit.register
def _close_all():
    """Before the interpreter and its threads are gone."""
    for each in list(_open):
        each.close()


class Publisher(_muster.Publisher):
    """Takes the name; the newest publisher of a name is the only one, and an earlier one gets muster.Aborted.

    Readers connect to listen ("127.0.0.1:0"; port 0: a free one), or to reach where that is another address. history
    says how many versions before the newest one are kept, so that readers fetch only changes.

    tls_cert and tls_key are PEM files with this process's certificate and its key, and are needed for TLS: readers then
    connect under TLS alone. With tls_ca, a PEM file of authorities, readers must show a certificate of one of them, and
    with tls_peer_names, a pattern ("*.readers.example") or a list of them, one that has such a name.
    authorization is a file with a policy of readers (docs/publications.md, "Security"). For a registry under TLS write
    https://HOST:PORT and set MUSTER_REGISTRY_CA_FILE, _CERT_FILE and _KEY_FILE (docs/tls.md). muster.NotFound names a
    file that is not there.
    """

    def __new__(cls, *args, **words):
        self = super().__new__(cls, *args, **with_peer_names(words))
        _open.add(self)
        return self

    def put(self, tensors, wait_readers=0, timeout=30):
        """Make the next version of {name: array}, and return its number.

        Arrays are NumPy's, PyTorch's on the CPU, or others with the buffer protocol, contiguous. Readers get them in their
        shapes: where one has not one dimension, a tensor "muster.shapes" tells them, which readers in C see as it is. It
        waits until wait_readers readers have the version (ALL: all that are connected). After muster.DeadlineExceeded
        the version may be there: `version` tells. Ctrl-C ends the publisher.
        """
        items = tensors.items() if isinstance(tensors, collections.abc.Mapping) else tensors
        tensors = [(name, *memory_of(array)) for name, array in items]
        shapes = {name: list(array.shape) for name, array, _ in tensors if len(getattr(array, "shape", (0,))) != 1}
        if any(name == _SHAPES for name, *_ in tensors):
            raise ValueError(f"a tensor must have another name than {_SHAPES!r}, which tells readers the shapes: rename it")
        if shapes:
            text = json.dumps(shapes, sort_keys=True).encode()
            tensors.append((_SHAPES, numpy.frombuffer(text, numpy.uint8), None))
        return super().put(tensors, wait_readers, timeout)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close()
        return False


class Reader(_muster.Reader):
    """Follows a publication while the program computes; listen: an address where other readers fetch from this one.

    It has room for two versions: while an older one than the newest is in use, no third one is fetched.

    tls: connections are under TLS, and publishers are checked against the authorities of the system, or those in tls_ca.
    tls_cert, tls_key, authorization: as those of Publisher; a reader that listens needs the certificate. tls_peer_names:
    names of which a publisher's certificate must have one, in place of its address or "muster-link". Each of these implies tls.
    """

    def __new__(cls, *args, **words):
        self = super().__new__(cls, *args, **with_peer_names(words))
        _open.add(self)
        return self

    def take(self, version=0, timeout=30):
        """Wait for this version or a later one, and give the newest. With 0 and timeout=0: what is here, or an error.

        muster.DeadlineExceeded says that it has not come.
        """
        return Version(super().take(version, timeout))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close()
        return False


class Version(collections.abc.Mapping):
    """A whole version: name -> NumPy array, read only, in the shape that the publisher gave it; flat, if that was a program in
    C. Its bytes stay as they are while an array of it is in use."""

    def __init__(self, version):
        self.number, self.bytes = version.number, version.bytes
        self._tensors = version.tensors()
        shapes = self._tensors.pop(_SHAPES, None)
        self._shapes = json.loads(bytes(memoryview(shapes))) if shapes is not None else {}

    def __getitem__(self, name):
        tensor = self._tensors[name]
        array = numpy.frombuffer(tensor, NUMPY_TYPES[tensor.dtype])
        return array.reshape(self._shapes[name]) if name in self._shapes else array

    def __iter__(self):
        return iter(self._tensors)

    def __len__(self):
        return len(self._tensors)

    def dtype(self, name):
        """"f32", "bf16" (whose array has 16-bit integers), …"""
        return self._tensors[name].dtype

    def torch(self, name):
        """The tensor as one of PyTorch, in the same memory: it must not be written to."""
        tensor = torch_of(self._tensors[name])
        return tensor.reshape(self._shapes[name]) if name in self._shapes else tensor
