"""Interop clients and servers of others: how each is started, and what it lacks."""
import pathlib
import shutil
import socket
import subprocess
import time

import interop_roles as roles

COMPRESSED_REQUESTS = ["client_compressed_unary", "client_compressed_streaming"]
COMPRESSED_ANSWERS = ["server_compressed_unary", "server_compressed_streaming"]
ORCA = ["orca_per_rpc", "orca_oob"]
SOAKS = ["rpc_soak", "channel_soak"]
PATIENCE = ["--soak_per_iteration_max_acceptable_latency_ms=60000", "--soak_overall_timeout_seconds=600", "--soak_iterations=20"]
# A balancer that the clients bring along only looks at load reports.
BALANCER = '--service_config_json={"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}'


class Missing(Exception):
    """This stranger is not here; the text says why."""


class Stranger:
    """One implementation. client_lacks, server_lacks: cases that it has no part in, and why."""
    name = ""
    client_lacks, server_lacks = {}, {}

    def client(self, port, case):
        """The command that runs a case against 127.0.0.1:port."""
        raise NotImplementedError

    def server(self, port):
        """The command that serves 127.0.0.1:port."""
        raise NotImplementedError


def lacking(*groups):
    return {case: reason for reason, cases in groups for case in cases}


def more(case):
    return ([BALANCER] if case in ORCA else []) + (PATIENCE if case in SOAKS else [])


class Go(Stranger):
    name = "go"
    client_lacks = lacking(("has no such case", COMPRESSED_REQUESTS + COMPRESSED_ANSWERS + ["very_large_request"]))
    server_lacks = lacking(("has no gzip", COMPRESSED_REQUESTS + COMPRESSED_ANSWERS), ("tells no server_id", ["pick_first_unary"]),
                           ("takes 4 MiB at most", ["very_large_request"]))

    def __init__(self):
        self.folder = pathlib.Path(find("go_interop"))

    def client(self, port, case):
        return [self.folder / "client", "--server_host=127.0.0.1", f"--server_port={port}", f"--test_case={case}", *more(case)]

    def server(self, port):
        return [self.folder / "server", f"--port={port}"]


class Java(Stranger):
    name = "java"
    server_lacks = lacking(("does not look at the flag", COMPRESSED_REQUESTS), ("does not compress", ["server_compressed_streaming"]),
                           ("tells no server_id", ["pick_first_unary"]))
    is_okhttp = "false"

    def __init__(self):
        need("java", "default-jre-headless")
        self.java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", find("java_interop") + "/*"]

    def client(self, port, case):
        return [*self.java, "io.grpc.testing.integration.TestServiceClient", "--use_tls=false", f"--use_okhttp={self.is_okhttp}",
                "--server_host=127.0.0.1", f"--server_port={port}", f"--test_case={case}", *more(case)]

    def server(self, port):
        return [*self.java, "io.grpc.testing.integration.TestServiceServer", "--use_tls=false", f"--port={port}"]


class JavaOkhttp(Java):
    name = "okhttp"
    is_okhttp = "true"
    server = None


class Ruby(Stranger):
    """gRPC's C core, as Debian has it; its gem brings both programs along."""
    name = "ruby"
    client_lacks = lacking(("has no such case", COMPRESSED_ANSWERS + ORCA + SOAKS + ["special_status_message", "very_large_request",
                                                                                    "pick_first_unary"]))
    server_lacks = lacking(("does not look at the flag", COMPRESSED_REQUESTS), ("does not compress", COMPRESSED_ANSWERS),
                           ("has no load reports", ORCA), ("tells no server_id", ["pick_first_unary"]),
                           ("takes 4 MiB at most", ["very_large_request"]))

    def __init__(self):
        need("ruby", "ruby-grpc")
        found = subprocess.run(["ruby", "-e", 'puts Gem::Specification.find_by_name("grpc").full_gem_path'], capture_output=True,
                               text=True)
        self.folder = pathlib.Path(found.stdout.strip()) / "src" / "ruby" / "pb" / "test"
        if found.returncode != 0 or not (self.folder / "client.rb").exists():
            raise Missing("the gem grpc is not installed, or without its tests (Debian: ruby-grpc)")

    def client(self, port, case):
        return ["ruby", self.folder / "client.rb", "--server_host=127.0.0.1", f"--server_port={port}", f"--test_case={case}"]

    def server(self, port):
        return ["ruby", self.folder / "server.rb", "--port", str(port)]


ALL = [Go, Java, JavaOkhttp, Ruby]


def need(tool, package):
    if shutil.which(tool) is None:
        raise Missing(f"{tool} is not installed (Debian: {package})")


def find(name):
    path = roles.stranger_path(name)
    if path is None:
        raise Missing(f"{name} is not installed (tests/tools/install-strangers {name})")
    return path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Running:
    """A stranger's server. They take a port but tell none, so a free one is looked for; another try where it was lost."""

    def __init__(self, stranger, log):
        for _ in range(3):
            self.port = free_port()
            self.process = subprocess.Popen(stranger.server(self.port), stdout=log, stderr=log)
            if self.is_reached():
                return
            self.stop()
        raise SystemExit(f"FAILED {stranger.name}'s server does not listen")

    def is_reached(self):
        until = time.monotonic() + roles.PATIENCE_S
        while time.monotonic() < until and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return True
            except OSError:
                time.sleep(0.05)
        return False

    def stop(self):
        self.process.kill()
        self.process.wait()
