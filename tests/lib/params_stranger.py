"""A stranger at the gRPC door of a server of parameters: grpcio, and messages that Google's protobuf has made of proto/params.proto."""
import importlib
import os
import subprocess
import sys
import tempfile
import time

import needs

ROOT = os.environ.get("MUSTER_SOURCE_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PATIENCE_S = 60


def messages(add_cleanup):
    """The module of proto/params.proto. Skips where grpcio, protobuf or protoc is missing."""
    try:
        importlib.import_module("google.protobuf")
    except ImportError:
        needs.skip("the Python module google.protobuf is not installed (Debian: python3-protobuf)")
    folder = tempfile.TemporaryDirectory(prefix="muster-params-proto-")
    add_cleanup(folder.cleanup)
    proto = os.path.join(ROOT, "proto")
    subprocess.run([needs.tool("protoc", "protobuf-compiler"), f"--proto_path={proto}", f"--python_out={folder.name}", os.path.join(proto, "params.proto")],
                   check=True)
    sys.path.insert(0, folder.name)
    return importlib.import_module("params_pb2")


def until_answered(call, request):
    """The answer; while no server takes the call, which a death or a move may cause, it is sent again."""
    import grpc  # pylint: disable=import-outside-toplevel
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call(request)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() > until:
                raise
            time.sleep(0.01)


def refusal(call, request):
    """Code and text with which a call is refused, which it must be."""
    import grpc  # pylint: disable=import-outside-toplevel
    try:
        call(request)
    except grpc.RpcError as refused:
        return refused.code(), refused.details()
    raise AssertionError(f"it is not refused: {request}")


class Stranger:
    """Calls of one channel: stranger.Push(request)."""

    def __init__(self, channel, pb, job=None):
        self.channel, self.pb = channel, pb
        self.metadata = [] if job is None else [("muster-job", job)]

    def watch(self, source=None):
        """Messages as they come; its cancel() ends it."""
        call = self.channel.unary_stream("/muster.params.v1.Params/Watch", request_serializer=lambda message: message.SerializeToString(),
                                         response_deserializer=self.pb.WatchResponse.FromString)
        return call(self.pb.WatchRequest(source=source), timeout=PATIENCE_S, metadata=self.metadata)

    def start(self, method, request):
        """A call that may wait: its result() is the answer."""
        call = self.channel.unary_unary(f"/muster.params.v1.Params/{method}", request_serializer=lambda message: message.SerializeToString(),
                                        response_deserializer=getattr(self.pb, method + "Response").FromString)
        return call.future(request, timeout=PATIENCE_S, metadata=self.metadata)

    def __getattr__(self, method):
        answer = getattr(self.pb, method + "Response")
        call = self.channel.unary_unary(f"/muster.params.v1.Params/{method}", request_serializer=lambda message: message.SerializeToString(),
                                        response_deserializer=answer.FromString)
        return lambda request: call(request, timeout=PATIENCE_S, wait_for_ready=False, metadata=self.metadata)
