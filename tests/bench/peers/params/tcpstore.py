#!/usr/bin/env python3
"""torch's TCPStore beside a parameter server: it keeps whole values, and adds nothing to them.

usage: tcpstore.py serve PORT
       tcpstore.py load write|read PORT CONNECTIONS BATCH VALUE_BYTES KEYS SECONDS

load prints "ready" when the keys are there, begins when a line comes in, and prints one line of JSON. A write is not
answered (multi_set), so a read follows the last one of each connection before the clock is stopped."""
import datetime
import json
import os
import random
import sys
import threading
import time

PATIENCE = datetime.timedelta(seconds=60)
REQUESTS = 512
FILL = 1000


def store_open(port, is_master):
    from torch.distributed import TCPStore  # the program says that it is missing where it is asked for it

    return TCPStore("127.0.0.1", port, is_master=is_master, wait_for_workers=False, timeout=PATIENCE)


def serve(port):
    store = store_open(int(port), True)
    print("listening", flush=True)
    threading.Event().wait()
    del store


def name(key):
    return f"k{key:07}"


def load(verb, port, connections, batch, value_bytes, keys, seconds):
    port, connections, batch, value_bytes, keys, seconds = *map(int, (port, connections, batch, value_bytes, keys)), float(seconds)
    stores = [store_open(port, False) for _ in range(connections)]
    value = b"x" * value_bytes
    for start in range(0, keys, FILL):
        stores[0].multi_set([name(key) for key in range(start, min(start + FILL, keys))], [value] * min(FILL, keys - start))
    stores[0].get(name(keys - 1))
    draw = random.Random(1)
    requests = [[name(draw.randrange(keys)) for _ in range(batch)] for _ in range(REQUESTS)]
    counts = [0] * connections
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.monotonic()

    def run(place):
        store, at = stores[place], place * REQUESTS // connections
        while time.monotonic() - begin < seconds:
            if verb == "write":
                store.multi_set(requests[at % REQUESTS], [value] * batch)
            else:
                store.multi_get(requests[at % REQUESTS])
            at += 1
            counts[place] += 1
        store.get(requests[0][0])

    threads = [threading.Thread(target=run, args=(place,)) for place in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - begin
    print(json.dumps({"messages_per_s": sum(counts) / took, "ops_per_s": sum(counts) * batch / took, "rows": sum(counts) * batch}), flush=True)
    os._exit(0)  # the stores' own threads would be waited for


if __name__ == "__main__":
    {"serve": serve, "load": load}[sys.argv[1]](*sys.argv[2:])
