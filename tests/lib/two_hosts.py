"""Two hosts: two network namespaces with a cable (veth) between them, which a case may cut and mend."""
import json
import os
import secrets
import shutil
import subprocess

from puppets import PATIENCE_S


def ip(*words):
    return subprocess.run(["ip", *words], text=True, capture_output=True, timeout=PATIENCE_S)


class Host:
    """A network namespace with one end of the cable."""

    def __init__(self, name, address):
        self.name = name
        self.address = address
        self.inside = ("ip", "netns", "exec", name)
        self.variables = {"MUSTER_HOST_KEY": name}

    def do(self, *words):
        done = ip("-n", self.name, *words)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def received_bytes(self):
        return json.loads(self.do("-s", "-json", "link", "show", "dev", "cable"))[0]["stats64"]["rx"]["bytes"]


def two_hosts(add_cleanup, network="10.77.0"):
    """Two hosts with the addresses .1 and .2 of a network."""
    stem = f"muster-{os.getpid()}-{secrets.token_hex(4)}"
    hosts = [Host(f"{stem}-{i}", f"{network}.{i + 1}") for i in range(2)]
    for host in hosts:
        add_cleanup(ip, "netns", "del", host.name)
        done = ip("netns", "add", host.name)
        assert done.returncode == 0, done.stderr
    hosts[0].do("link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", hosts[1].name)
    for host in hosts:
        host.do("address", "add", f"{host.address}/24", "dev", "cable")
        host.do("link", "set", "lo", "up")
        host.do("link", "set", "cable", "up")
    return hosts


def why_not():
    """Why there can be no two hosts here, or None."""
    if not shutil.which("ip"):
        return "ip (iproute2) is not installed"
    cleanups = []
    try:
        two_hosts(lambda *call: cleanups.append(call))
    except AssertionError as error:
        return f"there can be no network namespaces here: {error}"
    finally:
        for call, *words in reversed(cleanups):
            call(*words)
    return None
