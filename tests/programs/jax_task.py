#!/usr/bin/env python3
"""One process of a JAX job: jax_task.py ADDRESS ID TASKS [WORD…]. Prints what came of each word; 'wait' reads a line first.

Needs jax. Nothing of muster is in here: the job only gets muster's address as its coordinator, or with OWN=1 one at which process 0
serves it itself.
"""
import concurrent.futures
import os
import sys

import jax

ADDRESS, ID, TASKS, *WORDS = sys.argv[1:]
ID, TASKS = int(ID), int(TASKS)
HEARTBEAT_S = int(os.environ.get("HEARTBEAT_S", "10"))

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
if os.environ.get("RECOVERABLE"):
    jax.config.update("jax_enable_recoverability", True)


def say(*words):
    print(*words, flush=True)


def client():
    from jax._src import distributed
    return distributed.global_state.client


def initialize():
    jax.distributed.initialize(
        coordinator_address=ADDRESS, num_processes=TASKS, process_id=ID,
        coordinator_bind_address="127.0.0.1:0" if ID == 0 and not os.environ.get("OWN") else None,
        initialization_timeout=int(os.environ.get("INIT_S", "60")), heartbeat_timeout_seconds=HEARTBEAT_S)
    say("ready")


def keys():
    me = client()
    me.key_value_set(f"d/k{ID}", f"v{ID}")
    values = [me.blocking_key_value_get(f"d/k{i}", 30000) for i in range(TASKS)]
    me.key_value_set_bytes(f"b/{ID}", bytes([ID, 0, 255]))
    me.wait_at_barrier("keys", 30000)
    directory = sorted(me.key_value_dir_get("d/"))
    me.wait_at_barrier("listed", 30000)
    try:
        me.key_value_set(f"d/k{ID}", "other")
        twice = "overwritten"
    except Exception as error:  # jaxlib's own type
        twice = "ALREADY_EXISTS" in str(error)
    me.key_value_set(f"d/k{ID}", "other", allow_overwrite=True)
    try:
        me.key_value_try_get("nope")
        missing = "found"
    except Exception as error:
        missing = "NOT_FOUND" in str(error)
    me.wait_at_barrier("keys2", 30000)
    me.key_value_increment("count", ID + 1)
    me.wait_at_barrier("keys3", 30000)
    count = me.key_value_try_get("count")
    me.wait_at_barrier("keys4", 30000)
    if ID == 0:
        me.key_value_delete("d")
    me.wait_at_barrier("keys5", 30000)
    say("keys", values, directory, twice, missing, count, me.key_value_dir_get("d/"),
        list(me.blocking_key_value_get_bytes("b/0", 1000)))


def barriers():
    me = client()
    me.wait_at_barrier("all", 30000)
    if ID < 2:
        me.wait_at_barrier("two", 30000, [0, 1])
    try:
        if ID == 0:
            me.wait_at_barrier("late", 300)
        say("barriers", "passed" if ID else "not refused")
    except Exception as error:
        say("barriers", "DEADLINE_EXCEEDED" in str(error) and f"1/{TASKS}" in str(error))


def outcome(function, *words):
    """What it gives, or the first line of what it says against it."""
    try:
        return function(*words)
    except Exception as error:  # jaxlib's own type
        return str(error).split("\n")[0]


def meet(name):
    client().wait_at_barrier("meet " + name, 60000)


def large():
    me = client()
    if ID == 0:
        for size in (0, 1, 5):
            me.key_value_set_bytes(f"large/{size}", bytes([size]) * (size << 20))
    for size in (0, 1, 5):
        value = me.blocking_key_value_get_bytes(f"large/{size}", 60000)
        say("large", size, value == bytes([size]) * (size << 20))
    meet("large")
    say("large all", [len(value) for _, value in me.key_value_dir_get_bytes("large/")])


def many():
    me = client()
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda i: me.key_value_set(f"many/{ID}/{i:03}", "v" * i), range(100)))
        sizes = list(threads.map(lambda i: len(me.blocking_key_value_get(f"many/{(ID + 1) % TASKS}/{i:03}", 60000)),
                                 range(100)))
        counts = list(threads.map(lambda i: me.key_value_increment("many counts", 1), range(50)))
    say("many", sizes == list(range(100)), len(set(counts)))
    meet("many")
    say("many", me.key_value_try_get("many counts"), len(me.key_value_dir_get("many")), len(me.key_value_dir_get("man")),
        me.key_value_dir_get("many/1/")[1])
    meet("many listed")
    if ID == 0:
        for gone in ("many/1/", "many/2/001", "many/2/00", "absent"):
            say("many gone", outcome(me.key_value_delete, gone), len(me.key_value_dir_get("many")))
        for text in ("41", " 41\t", "+41", "-5", "", "0x10", "4 1", "99999999999"):
            me.key_value_set("number", text, allow_overwrite=True)
            say("many numbers", repr(text), outcome(me.key_value_increment, "number", 1))
        me.key_value_set("/a//b/", "x")
        say("many names", outcome(me.key_value_try_get, "a/b"), outcome(me.key_value_set, "a/b", "y"), me.key_value_dir_get("a"),
            outcome(me.blocking_key_value_get, "absent", 0))
    meet("many gone")


def crowd():
    """Barriers of 64 names, entered in another order by every other task."""
    names = [f"crowd {i}" for i in range(64)]
    with concurrent.futures.ThreadPoolExecutor(64) as threads:
        say("crowd", set(threads.map(lambda name: outcome(client().wait_at_barrier, name, 60000), names[::1 - ID % 2 * 2])))


def members():
    """Who meets at a barrier is settled by its first call."""
    me, pair = client(), [ID, ID ^ 1]
    say("members of two", outcome(me.wait_at_barrier, f"two {ID // 2}", 60000, pair))
    say("members all", outcome(me.wait_at_barrier, "mixed", 60000, *([] if ID % 2 else [list(range(TASKS))])))
    if ID == 0:
        for name, sets in (("unknown", ([0, 77], [0])), ("twice", ([0, 0], [0], [0, 0])), ("foreign", ([1, 2], [0], [1, 2])),
                           ("none", ([0], [], [0])), ("every", ([], list(range(TASKS)), [0, 1]))):
            for tasks in sets:
                say("members", name, tasks, outcome(me.wait_at_barrier, name, 100, tasks))
        for tasks in ([], [1], [0, 0, 77]):
            alive = outcome(me.get_live_nodes, tasks)
            say("members alive", tasks, alive if isinstance(alive, str) else list(alive))
    meet("members late")
    if ID == 0:
        for _ in range(2):
            say("members late", outcome(me.wait_at_barrier, "late", 100))
    meet("members gap")
    if ID == 1:
        for _ in range(2):
            say("members late", outcome(me.wait_at_barrier, "late", 100))
    meet("members")


def utils():
    import numpy
    from jax.experimental import multihost_utils
    say("utils", multihost_utils.broadcast_one_to_all(numpy.arange(3) + ID).tolist(),
        multihost_utils.broadcast_one_to_all(numpy.arange(3) + ID, is_source=ID == 1).tolist(),
        multihost_utils.process_allgather(numpy.array([ID, 7])).tolist(), outcome(multihost_utils.sync_global_devices, "here"),
        outcome(multihost_utils.assert_equal, numpy.arange(3), "same"),
        outcome(multihost_utils.assert_equal, ID, "other").startswith("other. Expected: "))


def collective():
    import jax.numpy as jnp
    import numpy
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    gathered = multihost_utils.process_allgather(jnp.array([ID + 1.0])).ravel().tolist()
    mesh = Mesh(numpy.array(jax.devices()), ("tasks",))
    sharding = NamedSharding(mesh, PartitionSpec("tasks"))
    array = jax.make_array_from_process_local_data(sharding, numpy.full((1,), ID + 1.0, numpy.float32))
    total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))(array)
    psum = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "tasks"), mesh=mesh, in_specs=PartitionSpec("tasks"),
                                 out_specs=PartitionSpec()))(array)
    say("collective", jax.device_count(), gathered, float(total), float(psum[0]))


def live():
    nodes = client().get_live_nodes(list(range(TASKS)))
    say("live", sorted(nodes))


def preemption():
    """Steps until the job agrees on one to stop at."""
    from jax.experimental import multihost_utils
    say("stepping")
    for step in range(100000):
        if multihost_utils.reached_preemption_sync_point(step):
            say("preempted")
            return
        import time
        time.sleep(0.01)
    say("never")


def shutdown():
    jax.distributed.shutdown()
    say("shut down")


initialize()
for word in WORDS:
    if word == "wait":
        sys.stdin.readline()
    else:
        globals()[word]()
