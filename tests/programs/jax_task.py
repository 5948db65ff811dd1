#!/usr/bin/env python3
"""One process of a JAX job: jax_task.py ADDRESS ID TASKS [WORD…]. Prints what came of each word; 'wait' reads a line first.

Needs jax. Nothing of muster is in here: the job only gets muster's address as its coordinator.
"""
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
        coordinator_bind_address="127.0.0.1:0" if ID == 0 else None,
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
