"""Ports of loopback for servers that must be told one before they start."""
import socket


def hold_ports(count):
    """Bound sockets that do not listen: until they are closed the kernel gives their ports to nobody who has not asked for them, and
    a server that sets SO_REUSEADDR, as muster and Go's do, may listen there, again and again."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
    return sockets


def held_port(add_cleanup):
    """A port that stays this test's own until its clean-up."""
    held = hold_ports(1)[0]
    add_cleanup(held.close)
    return held.getsockname()[1]
