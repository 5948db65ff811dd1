"""The interop programs, started and asked: what the tests of them share."""
import pathlib
import shutil
import subprocess

import needs

PATIENCE_S = 120

# The cases that a client may ask any server for.
CASES = """empty_unary large_unary client_compressed_unary server_compressed_unary client_streaming client_compressed_streaming
server_streaming server_compressed_streaming ping_pong empty_stream custom_metadata status_code_and_message
special_status_message unimplemented_method unimplemented_service cancel_after_begin cancel_after_first_response
timeout_on_sleeping_server pick_first_unary very_large_request orca_per_rpc orca_oob rpc_soak channel_soak""".split()

# Latencies are not what a busy machine is asked for.
SOAK = ["--soak_iterations", "20", "--soak_per_iteration_max_acceptable_latency_ms", "60000"]


class Server:
    """interop_server, or another program that prints `listening HOST:PORT` when it is ready."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening "):
            self.process.kill()
            raise SystemExit(f"FAILED {command[0]} does not listen: {line!r}")
        self.port = line.strip().rsplit(":", 1)[1]

    def stop(self):
        """The exit code: 0, or what a sanitizer has found."""
        self.process.terminate()
        return self.process.wait(timeout=PATIENCE_S)


# The name in the certificates that gRPC's own tests use, and in ours.
TLS_HOST = "foo.test.google.fr"


def make_certificate(folder):
    """A certificate that is its own authority, in files named as those of gRPC's tests."""
    folder = pathlib.Path(folder)
    command = [needs.tool("openssl", "openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=interop",
               "-addext", f"subjectAltName=DNS:{TLS_HOST}", "-keyout", folder / "server1.key", "-out", folder / "server1.pem"]
    subprocess.run(command, check=True, capture_output=True)
    shutil.copy(folder / "server1.pem", folder / "ca.pem")
    return folder


def tls_server(certificates):
    """Arguments of interop_server. None: plain text."""
    if certificates is None:
        return []
    return ["--use_tls", f"--tls_cert_file={certificates}/server1.pem", f"--tls_key_file={certificates}/server1.key"]


def tls_client(certificates):
    """Arguments of interop_client."""
    if certificates is None:
        return []
    return ["--use_tls", "--use_test_ca", f"--ca_file={certificates}/ca.pem", f"--server_host_override={TLS_HOST}"]


def run_client(port, case, *more):
    """One case of interop_client. (passed, what it printed)"""
    command = [needs.program("interop_client"), "--server_host=127.0.0.1", f"--server_port={port}", f"--test_case={case}", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.returncode == 0, (done.stdout + done.stderr).strip()
