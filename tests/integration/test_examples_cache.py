#!/usr/bin/env python3
"""examples/cache asked by grpcurl: values, times to live, room made for new ones, streams in and out."""
import base64
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import guard

guard.enter()
import interop_roles as roles
import needs
from example_services import Service

needs.stranger("grpcurl")


def value(text):
    return base64.b64encode(text.encode()).decode()


def get(cache, key):
    found, status = cache.ask("cache.Cache/Get", {"key": key})
    return base64.b64decode(found[0]["value"]).decode() if found else status


def check_values(cache):
    assert get(cache, "colour") == "NotFound"
    assert cache.ask("cache.Cache/Set", {"key": "colour", "value": value("green")})[0][0]["entries"] == "1"
    assert get(cache, "colour") == "green"
    cache.ask("cache.Cache/Set", {"key": "colour", "value": value("blue")})
    assert get(cache, "colour") == "blue"
    assert cache.ask("cache.Cache/Set", {"key": "", "value": value("x")})[1] == "InvalidArgument"
    assert cache.ask("cache.Cache/Delete", {"key": "colour"})[0][0]["entries"] == "0"
    assert get(cache, "colour") == "NotFound"


def check_streams(cache):
    entries = [{"key": f"n/{i}", "value": value(str(i))} for i in range(100)]
    assert cache.ask("cache.Cache/Load", messages=entries)[0][0]["entries"] == "100"
    watch = cache.stream("cache.Cache/Watch", {"key": "n/9"})
    assert [watch.hear()["key"] for _ in range(11)] == ["n/9"] + [f"n/9{i}" for i in range(10)]
    cache.ask("cache.Cache/Set", {"key": "n/9x", "value": value("new")})
    cache.ask("cache.Cache/Set", {"key": "other", "value": value("unseen")})
    cache.ask("cache.Cache/Delete", {"key": "n/9"})
    change, removal = watch.hear(), watch.hear()
    assert (change["key"], change["isRemoved"]) == ("n/9x", False), change
    assert (removal["key"], removal["isRemoved"]) == ("n/9", True), removal
    # A time to live: the end is told, so nobody has to wait for it blindly.
    cache.ask("cache.Cache/Set", {"key": "n/9short", "value": value("brief"), "ttlMs": "50"})
    born, gone = watch.hear(), watch.hear()
    assert 0 < int(born["ttlMs"]) <= 51 and gone["key"] == "n/9short" and gone["isRemoved"], (born, gone)
    assert get(cache, "n/9short") == "NotFound"
    return watch


def check_room(cache):
    """One megabyte: older ones go, the one that was used last stays."""
    block = value("b" * 100_000)
    for i in range(9):
        assert cache.ask("cache.Cache/Set", {"key": f"big/{i}", "value": block})[1] == ""
    assert get(cache, "big/0").startswith("bbb")
    cache.ask("cache.Cache/Set", {"key": "big/9", "value": block})
    cache.ask("cache.Cache/Set", {"key": "big/10", "value": block})
    assert get(cache, "big/0").startswith("bbb") and get(cache, "big/1") == "NotFound"
    assert cache.ask("cache.Cache/Set", {"key": "huge", "value": value("h" * 1_100_000)})[1] == "ResourceExhausted"


cache = Service("cache", "--megabytes", "1")
check_values(cache)
watch = check_streams(cache)
check_room(cache)
assert cache.ask("grpc.health.v1.Health/Check")[0][0]["status"] == "SERVING"
assert cache.stop() == 0
while watch.hear() is not None:
    pass
assert watch.process.wait(60) != 0  # it was told that the cache ends
print("ok")
