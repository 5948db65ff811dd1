"""Fake clouds (tests/fake_cloud) for tests of `muster resolve`: scripts, people who leave secrets lying about, and the
proof that none of these is told."""
import base64
import json
import os
import pathlib
import re
import subprocess
import tempfile

BINARIES = pathlib.Path(os.environ.get("MUSTER_BINARY_DIR", "build-asan")) / "bin"
PROGRAM = BINARIES / "fake_cloud"
MUSTER = BINARIES / "muster"
PATIENCE_S = 60  # a hang is a failure; nothing that works takes as long, even on a busy machine

# Texts that nothing may print. Each is unlike any other text.
SECRETS = {name: f"sEcReT-{name}-9f3b" for name in (
    "access-token", "stale-token", "client-secret", "refresh-token", "subject-token", "bearer", "rotated",
    "kubeconfig-token", "echo", "password", "quoted")}
METADATA = {"Metadata-Flavor": "Google"}


class FakeCloud:
    """A cloud that plays a script until the `with` ends; then .log has a line per request: STATUS METHOD TARGET."""

    def __init__(self, script, *options):
        self.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.folder.name) / "script.json"
        path.write_text(json.dumps(script))
        self.authority = str(path.with_name("ca.pem"))
        if "--tls" in options:
            options = (*options, "--ca-out", self.authority)
        self.errors = open(path.with_name("log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen([PROGRAM, *options, "--log", *([path] if script else [])], stdout=subprocess.PIPE, stderr=self.errors,
                                        text=True)
        ready = self.process.stdout.readline().split()
        assert ready[:1] == ["listening"], ready
        self.hostport = ready[1]
        self.host, port = self.hostport.rsplit(":", 1)
        self.port = int(port)
        self.base = ("https://" if "--tls" in options else "http://") + self.hostport

    def __enter__(self):
        return self

    @property
    def log(self):
        with open(self.errors.name, encoding="utf-8") as file:
            return file.read()

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate()
        self.errors.close()
        self.last_log = self.log
        self.folder.cleanup()


def entry(method, path, times=None, match=None, **response):
    """One line of a script. body, status, headers, and the faults of tests/lib/fake_cloud.h."""
    line = {"match": dict({"method": method, "path_regex": path}, **(match or {})), "response": response}
    return dict(line, times=times) if times else line


def told(done):
    return done.stdout + done.stderr


def secrets_in(text, more=()):
    """The secrets that text tells, also in base64 (basic authentication, JWT)."""
    marks = [*SECRETS.values(), *more, "Bearer ", "Basic ", "eyJhbGci", "BEGIN PRIVATE", "BEGIN RSA"]
    marks += [base64.b64encode(s.encode()).decode()[:16] for s in (*SECRETS.values(), *more)]
    return sorted({mark for mark in marks if mark in text})


def clean_environment(**variables):
    """Without any cloud but what variables say; None: not set."""
    clean = {k: v for k, v in os.environ.items()
             if re.match(r"PATH$|LD_|ASAN_|UBSAN_|LSAN_|MUSTER_BINARY|MUSTER_SOURCE|LANG|TMPDIR$", k)}
    clean.update(HOME="/nonexistent", GCE_METADATA_HOST="127.0.0.1:1")
    clean.update({k: v for k, v in variables.items() if v is not None})
    return clean


def resolve(uri, *options, by=None, **variables):
    """`muster resolve` in a clean environment with these variables; by: a main_again.SideBySide instead of a new process."""
    args, variables = ["resolve", "--resolver", uri, *options], clean_environment(**variables)
    if by is not None:
        return by.run(args, variables)
    return subprocess.run([MUSTER, *args], env=variables, text=True, capture_output=True, timeout=PATIENCE_S, check=False)
