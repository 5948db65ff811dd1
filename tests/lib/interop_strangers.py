"""The interop cases between muster and others: how each stranger is started, what it lacks, and the table.

`ok`; `FAILED`, with what was printed below the table; `-`: the other side has no part in the case, as the list at the end says.
A case that the other side is said to lack and that passes all the same is shown as `ok!`.
"""
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import zipfile
from concurrent import futures

import interop_roles as roles
import needs

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
    """One implementation. client_lacks, server_lacks: cases that it has no part in, and why.

    certificates: a folder with ca.pem, server1.pem and server1.key as its programs expect them; None: plain text.
    """
    name = ""
    client_lacks, server_lacks = {}, {}
    certificates = None

    def secure(self, folder):
        """From now on over TLS; folder is an empty one for its certificates."""
        self.certificates = roles.make_certificate(folder)

    def truth(self):
        return "true" if self.certificates else "false"

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
        return [self.folder / "client", "--server_host=127.0.0.1", f"--server_port={port}", f"--test_case={case}", *more(case),
                *roles.tls_client(self.certificates)]

    def server(self, port):
        return [self.folder / "server", f"--port={port}", *roles.tls_server(self.certificates)]


class Java(Stranger):
    name = "java"
    server_lacks = lacking(("does not look at the flag", COMPRESSED_REQUESTS), ("does not compress", ["server_compressed_streaming"]),
                           ("tells no server_id", ["pick_first_unary"]))
    is_okhttp = "false"

    def __init__(self):
        need("java", "default-jre-headless")
        self.java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", find("java_interop") + "/*"]

    def secure(self, folder):
        """Its programs have theirs in a jar, and take no others."""
        jar, = pathlib.Path(find("java_interop")).glob("grpc-testing-[0-9]*.jar")
        for name in ("ca.pem", "server1.pem", "server1.key"):
            (pathlib.Path(folder) / name).write_bytes(zipfile.ZipFile(jar).read("certs/" + name))
        self.certificates = folder

    def client(self, port, case):
        return [*self.java, "io.grpc.testing.integration.TestServiceClient", f"--use_tls={self.truth()}", "--use_test_ca=true",
                f"--use_okhttp={self.is_okhttp}", f"--server_host_override={roles.TLS_HOST}", "--server_host=127.0.0.1",
                f"--server_port={port}", f"--test_case={case}", *more(case)]

    def server(self, port):
        return [*self.java, "io.grpc.testing.integration.TestServiceServer", f"--use_tls={self.truth()}", f"--port={port}"]


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

    def secure(self, folder):
        self.certificates = self.folder.parents[1] / "spec" / "testdata"

    def client(self, port, case):
        return ["ruby", self.folder / "client.rb", "--server_host=127.0.0.1", f"--server_port={port}", f"--test_case={case}",
                f"--use_tls={self.truth()}", "--use_test_ca=true", f"--server_host_override={roles.TLS_HOST}"]

    def server(self, port):
        return ["ruby", self.folder / "server.rb", "--port", str(port), *(["--use_tls", "true"] if self.certificates else [])]


class Python(Stranger):
    """gRPC's C core once more; the programs are ours (interop_python.py)."""
    name = "python"
    client_lacks = lacking(("compresses whole calls only", ["client_compressed_streaming"]), ("has no such case", SOAKS),
                           ("its core keeps the report for its balancer", ["orca_per_rpc"]))
    server_lacks = lacking(("cannot see the flag", COMPRESSED_REQUESTS))

    def __init__(self):
        self.program = [needs.find_python("grpc"), pathlib.Path(__file__).with_name("interop_python.py")]
        if self.program[0] is None:
            raise Missing("the Python module grpc is not installed (Debian: python3-grpcio)")

    def client(self, port, case):
        return [*self.program, "client", "--server_host=127.0.0.1", f"--server_port={port}", f"--test_case={case}",
                *roles.tls_client(self.certificates)]

    def server(self, port):
        return [*self.program, "server", f"--port={port}", *roles.tls_server(self.certificates)]


ALL = [Go, Java, JavaOkhttp, Ruby, Python]


def need(tool, package):
    if shutil.which(tool) is None:
        raise Missing(f"{tool} is not installed (Debian: {package})")


def find(name):
    path = needs.stranger_path(name)
    if path is None:
        raise Missing(needs.stranger_is_missing(name))
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


def their_client(stranger, case, port):
    try:
        done = subprocess.run(stranger.client(port, case), capture_output=True, text=True, errors="replace",
                              timeout=roles.PATIENCE_S)
    except subprocess.TimeoutExpired:
        return False, "no end after %d s" % roles.PATIENCE_S
    return done.returncode == 0, done.stdout + done.stderr


def as_server(stranger):
    """Their client against our server."""
    server = roles.Server([needs.program("interop_server"), "--port=0", *roles.tls_server(stranger.certificates)])
    column = {case: their_client(stranger, case, server.port) for case in roles.CASES if case not in stranger.client_lacks}
    code = server.stop()
    column["the server ends in order"] = code == 0, f"exit code {code}"
    return f"{stranger.name}->muster", column, stranger.client_lacks


def as_client(stranger):
    """Our client against their server."""
    column = {}
    with tempfile.TemporaryFile() as log:
        server = Running(stranger, log)
        try:
            for case in roles.CASES:
                column[case] = roles.run_client(server.port, case, *(roles.SOAK if case in SOAKS else []),
                                                *roles.tls_client(stranger.certificates))
        finally:
            server.stop()
    return f"muster->{stranger.name}", column, stranger.server_lacks


def cell(column, lacks, row):
    if row not in column:
        return "-"
    if row in lacks:
        return "ok!" if column[row][0] else "-"
    return "ok" if column[row][0] else "FAILED"


def show(columns):
    rows = roles.CASES + ["the server ends in order"]
    print("%-28s" % "" + " ".join(name for name, _, _ in columns))
    for row in rows:
        print("%-28s" % row + " ".join(cell(column, lacks, row).ljust(len(name)) for name, column, lacks in columns))
    failed = 0
    for name, column, lacks in columns:
        for row in rows:
            if cell(column, lacks, row) == "FAILED":
                failed += 1
                print(f"FAILED {name} {row}:\n{column[row][1][-3000:]}")
    for name, _, lacks in columns:
        for reason in dict.fromkeys(lacks.values()):
            print(f"{name} -: {reason}: {' '.join(case for case in lacks if lacks[case] == reason)}")
    return failed


def gather(is_tls, folder):
    """Columns of all that are here, two at a time; and why others are not."""
    jobs, missing = [], []
    with futures.ThreadPoolExecutor(2) as pool:
        for kind in ALL:
            try:
                stranger = kind()
            except Missing as reason:
                missing.append(f"{kind.name}: {reason}")
                continue
            if is_tls:
                stranger.secure(tempfile.mkdtemp(dir=folder))
            jobs.append(pool.submit(as_server, stranger))
            if stranger.server is not None:
                jobs.append(pool.submit(as_client, stranger))
    return [job.result() for job in jobs], missing


def run(is_tls):
    """Shows the table. The exit code."""
    for name in ("interop_server", "interop_client"):
        needs.program(name)
    if is_tls:
        needs.tool("openssl", "openssl")
    with tempfile.TemporaryDirectory() as folder:
        columns, missing = gather(is_tls, folder)
    failed = show(columns) if columns else 0
    print("\n".join("not here: " + text for text in missing))
    if not columns:
        needs.skip("; ".join(missing))
    return int(failed > 0)
