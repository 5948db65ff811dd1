"""Registries that a test starts itself: an etcd cluster whose members it kills and brings back, or the embedded one."""
import os
import shutil
import subprocess
import tempfile
import time

from ports import hold_ports
from puppets import CLEAN, MUSTER, PATIENCE_S

ETCD = shutil.which("etcd")
ETCDCTL = shutil.which("etcdctl")


def patience_of(words):
    """Options of etcdctl, which waits for 2 s for a connection by itself, and for 5 s for an answer. Who asks whether it lives wants to
    hear soon."""
    return ["--dial-timeout=2s"] if "endpoint" in words else [f"--dial-timeout={PATIENCE_S}s", f"--command-timeout={PATIENCE_S}s"]


def etcdctl(endpoints, *words, prefix=(), **options):
    options = {"text": True, "capture_output": True, "timeout": PATIENCE_S} | options
    return subprocess.run([*prefix, ETCDCTL, "--endpoints", endpoints, *patience_of(words), *words],
                          env=dict(os.environ, ETCDCTL_API="3"), **options)


class EtcdCluster:
    """Members on loopback; killed ones keep their data folder and port."""

    def __init__(self, add_cleanup, size=3, ip="127.0.0.1", prefix=(), tls=None):
        where = tempfile.TemporaryDirectory()
        add_cleanup(where.cleanup)
        self.where, self.size, self.ip, self.prefix = where.name, size, ip, prefix
        self.members = [None] * size
        self.user = ()
        self.server_tls, self.client_tls = self.secure(tls) if tls else ((), ())
        self.scheme = "https" if tls else "http"
        add_cleanup(self.stop)
        for _ in range(3):  # elsewhere than on 127.0.0.1 a port may be taken
            held = hold_ports(2 * size)
            for one in held:
                add_cleanup(one.close)
            ports = [one.getsockname()[1] for one in held]
            self.clients, self.peers = ports[:size], ports[size:]
            self.endpoints = ",".join(f"{self.scheme + '://' if tls else ''}{ip}:{port}" for port in self.clients)
            for i in range(size):
                shutil.rmtree(self.folder(i), ignore_errors=True)
                self.start(i)
            if self.wait_until_healthy():
                return
            self.stop()
        raise AssertionError("the etcd cluster does not start: " + self.log(0)[-2000:])

    def secure(self, tls):
        """What members and etcdctl are told; members demand certificates of their clients."""
        cert, key = tls.issue("member")
        self.cert, self.key, self.ca = *tls.issue("client"), tls.ca
        return (("--cert-file", cert, "--key-file", key, "--trusted-ca-file", tls.ca, "--client-cert-auth"),
                ("--cert", self.cert, "--key", self.key, "--cacert", tls.ca))

    def ctl(self, *words, endpoints=None):
        return etcdctl(endpoints or self.endpoints, *self.client_tls, *self.user, *words, prefix=self.prefix)

    def folder(self, i):
        return os.path.join(self.where, f"m{i}")

    def log(self, i):
        with open(self.folder(i) + ".log", encoding="utf-8", errors="replace") as file:
            return file.read()

    def endpoint(self, i):
        return f"{self.scheme}://{self.ip}:{self.clients[i]}"

    def start(self, i):
        client, peer = self.endpoint(i), f"http://{self.ip}:{self.peers[i]}"
        with open(self.folder(i) + ".log", "a", encoding="utf-8") as log:
            self.members[i] = subprocess.Popen(
                [*self.prefix, ETCD, "--name", f"m{i}", "--data-dir", self.folder(i), "--heartbeat-interval", "50",
                 "--election-timeout", "500", "--listen-client-urls", client, "--advertise-client-urls", client,
                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
                 ",".join(f"m{j}=http://{self.ip}:{self.peers[j]}" for j in range(self.size)), *self.server_tls],
                stdout=log, stderr=log)

    def kill(self, i):
        self.members[i].kill()
        self.members[i].wait()

    def is_healthy(self, i):
        return self.ctl("endpoint", "health", endpoints=self.endpoint(i)).returncode == 0

    def wait_until_healthy(self, only=None):
        """All that run answer with a leader. False: one has ended by itself."""
        deadline = time.monotonic() + PATIENCE_S
        for i in range(self.size) if only is None else [only]:
            while not self.is_healthy(i):
                if self.members[i].poll() is not None or time.monotonic() > deadline:
                    return False
        return True

    def stop(self):
        for member in self.members:
            if member is not None:
                member.kill()
                member.wait()


class Embedded:
    """`muster registry` in a process of its own."""

    def __init__(self, add_cleanup, *args, prefix=(), listen="127.0.0.1:0", **variables):
        self.args, self.prefix, self.listen, self.variables = args, prefix, listen, variables
        self.process = None
        add_cleanup(self.stop)
        self.start()

    def start(self):
        self.process = subprocess.Popen([*self.prefix, MUSTER, "registry", "--listen", self.listen, "--log-level", "error", *self.args],
                                        env=dict(CLEAN, **self.variables), text=True, stdout=subprocess.PIPE)
        words = self.process.stdout.readline().split()
        assert words[:1] == ["listening"], words
        self.endpoints = self.listen = words[1]

    def kill(self):
        self.process.kill()
        self.stop()

    def stop(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=PATIENCE_S)
            self.process.stdout.close()
        self.process = None
