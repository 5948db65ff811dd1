"""Hosts at one switch: network namespaces whose links have a speed in both directions (tc tbf)."""
import os
import secrets
import shutil

from two_hosts import Host, ip

# A queue in front of a link is as long as that of a switch; what is beyond it is dropped.
QUEUE_BYTES = 1 << 20


def run(words):
    done = ip(*words)
    assert done.returncode == 0, (words, done.stderr)


def shape(namespace, device, mbit):
    """What leaves by this device."""
    burst = max(128 << 10, mbit * 125)  # a millisecond: the timer of the kernel is not finer everywhere
    run(("netns", "exec", namespace, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{mbit}mbit", "burst", str(burst), "limit",
         str(QUEUE_BYTES)))


def shaped_hosts(add_cleanup, count, mbit, network="10.78.0"):
    """Hosts with the addresses .1, .2 … of a network; their variables and how to run there are those of two_hosts.Host."""
    stem = f"muster-{os.getpid()}-{secrets.token_hex(4)}"
    switch = f"{stem}-switch"
    hosts = [Host(f"{stem}-{i}", f"{network}.{i + 1}") for i in range(count)]
    for name in [switch] + [host.name for host in hosts]:
        add_cleanup(ip, "netns", "del", name)
        run(("netns", "add", name))
    run(("-n", switch, "link", "add", "switch", "type", "bridge"))
    run(("-n", switch, "link", "set", "switch", "up"))
    for i, host in enumerate(hosts):
        host.do("link", "add", "cable", "type", "veth", "peer", "name", f"port{i}", "netns", switch)
        host.do("address", "add", f"{host.address}/24", "dev", "cable")
        host.do("link", "set", "lo", "up")
        host.do("link", "set", "cable", "up")
        run(("-n", switch, "link", "set", f"port{i}", "master", "switch", "up"))
        shape(host.name, "cable", mbit)
        shape(switch, f"port{i}", mbit)
    return hosts


def why_not():
    """Why there can be no such hosts here, or None."""
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            return f"{tool} (iproute2) is not installed"
    cleanups = []
    try:
        shaped_hosts(lambda *call: cleanups.append(call), 1, 100)
    except AssertionError as error:
        return f"there can be no network namespaces with a speed here: {error}"
    finally:
        for call, *words in reversed(cleanups):
            call(*words)
    return None
