"""One worker of an unmodified TensorFlow on muster: tensorflow_task.py TASK PORT,PORT HOST:PORT LEADER.

HOST:PORT serves the coordination service as job "coordinator"; LEADER is "worker" or "coordinator": who leads the collectives.
"""
import importlib
import os
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf  # noqa: E402
from tensorflow.core.protobuf import tensorflow_server_pb2  # noqa: E402
from tensorflow.python.eager import context  # noqa: E402

config = importlib.import_module("tensorflow.compiler.xla.tsl.protobuf.coordination_config_pb2")
task, ports, coordinator, leader = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3], sys.argv[4]
cluster = tf.train.ClusterSpec({"worker": [f"127.0.0.1:{port}" for port in ports], "coordinator": [coordinator]})
here = context.context()
here.configure_collective_ops(collective_leader=f"/job:{leader}/replica:0/task:0", scoped_allocator_enabled_ops=(),
                              use_nccl_communication=False, device_filters=())
here.configure_coordination_service(
    service_type="standalone", service_leader="/job:coordinator/replica:0/task:0", enable_health_check=False,
    cluster_register_timeout_in_ms=60000, heartbeat_timeout_in_ms=60000, shutdown_barrier_timeout_in_ms=60000,
    coordinated_jobs=[config.CoordinatedJob(name="worker", num_tasks=len(ports))])
here.enable_collective_ops(tensorflow_server_pb2.ServerDef(
    cluster=cluster.as_cluster_def(), job_name="worker", task_index=task, protocol="grpc", port=int(ports[task]),
    default_session_config=here.config))
here.ensure_initialized()
print("devices", len(tf.config.list_logical_devices()), flush=True)
common = {"group_size": len(ports), "group_key": 1, "communication_hint": "ring"}
with tf.device(f"/job:worker/replica:0/task:{task}/device:CPU:0"):
    summed = tf.raw_ops.CollectiveReduceV2(input=tf.constant([task + 1.0] * 4), instance_key=100, ordering_token=[],
                                           merge_op="Add", final_op="Id", **common)
    if task == 0:
        sent = tf.raw_ops.CollectiveBcastSendV2(input=tf.constant([7.0, 8.0]), instance_key=101, **common)
    else:
        sent = tf.raw_ops.CollectiveBcastRecvV2(T=tf.float32, shape=[2], instance_key=101, **common)
print("sum", *summed.numpy(), flush=True)
print("broadcast", *sent.numpy(), flush=True)
here.set_config_key_value(f"key{task}", f"value{task}")
print("key", here.get_config_key_value(f"key{(task + 1) % len(ports)}"), flush=True)
if leader == "coordinator":
    here.check_collective_ops_peer_health("/job:coordinator/replica:0/task:0", timeout_in_ms=30000)
    print("healthy", flush=True)
