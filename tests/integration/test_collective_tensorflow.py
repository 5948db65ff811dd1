#!/usr/bin/env python3
"""A muster server as a member of an unmodified TensorFlow's collectives: each fetches the other's buffers (RecvBuf).

The muster server is bin/collective_member, which is told what to do; TensorFlow is this process. A collective that fails is the
end of TensorFlow's collectives, so each case has a process of its own, forked from one that has imported TensorFlow.

Needs tensorflow: tests/tools/install-strangers tensorflow, or MUSTER_TENSORFLOW_PYTHON names an interpreter that has it.
"""
import collections
import concurrent.futures
import importlib
import os
import pathlib
import signal
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import guard

guard.enter()
import interop_roles as roles
import needs
import ports

DEADLINE_S = 240
OWN = "/job:coordinator/replica:0/task:0/device:CPU:0"  # muster's device, rank 0
PEER = "/job:worker/replica:0/task:0/device:CPU:0"  # TensorFlow's, rank 1
GROUP = {"group_size": 2, "group_key": 1, "communication_hint": "ring"}


def equal(seen, wanted):
    assert seen == wanted, f"{seen}, not {wanted}"


class Member:
    """The muster server, and what it has answered."""

    def __init__(self):
        program = needs.program("collective_member")
        self.process = subprocess.Popen([program, "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address, self.incarnation = self.process.stdout.readline().split()[1:]
        self.answers = collections.defaultdict(list)
        self.news = threading.Condition()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            about, _, answer = line.rstrip("\n").partition(" ")
            with self.news:
                self.answers[about].append(answer)
                self.news.notify_all()

    def tell(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def answer(self, about):
        with self.news:
            assert self.news.wait_for(lambda: self.answers[about], DEADLINE_S), about + ": no answer"
            return self.answers[about].pop(0)

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(DEADLINE_S) == 0, "the member has failed"


class Pair:
    """This process's TensorFlow and the muster server, which leads group 1 of the two unless TensorFlow does."""

    def __init__(self, *claimed, tensorflow_leads=False):
        """claimed: the incarnation that muster's device claims, if it is another one than its own."""
        config = importlib.import_module("tensorflow.compiler.xla.tsl.protobuf.coordination_config_pb2")
        server = importlib.import_module("tensorflow.core.protobuf.tensorflow_server_pb2")
        self.held = ports.hold_ports(1)[0]  # TensorFlow must know its port before it starts
        port = self.held.getsockname()[1]
        self.member, self.address, self.claimed = Member(), f"127.0.0.1:{port}", claimed
        cluster = tf.train.ClusterSpec({"worker": [self.address], "coordinator": [self.member.address]})
        self.here = here = importlib.import_module("tensorflow.python.eager.context").context()
        leader = "/job:coordinator/replica:0/task:0"
        task = "/job:worker/replica:0/task:0"
        here.configure_collective_ops(collective_leader=task if tensorflow_leads else leader, scoped_allocator_enabled_ops=(),
                                      use_nccl_communication=False, device_filters=())
        here.configure_coordination_service(
            service_type="standalone", service_leader=leader, enable_health_check=False, cluster_register_timeout_in_ms=60000,
            heartbeat_timeout_in_ms=600000, shutdown_barrier_timeout_in_ms=60000,
            coordinated_jobs=[config.CoordinatedJob(name="worker", num_tasks=1)])
        here.enable_collective_ops(server.ServerDef(
            cluster=cluster.as_cluster_def(), job_name="worker", task_index=0, protocol="grpc", port=port,
            default_session_config=here.config))
        here.ensure_initialized()
        if tensorflow_leads:
            self.member.tell("follow", self.address)
            equal(self.member.answer("followed"), "ok")
        self.threads = concurrent.futures.ThreadPoolExecutor(4)
        self.incarnation = None

    def run(self, function, *words, **more):
        """Begin it beside us; the group is formed with the first."""
        running = self.threads.submit(function, *words, **more)
        if self.incarnation is None:
            self.member.tell("join", 1, 2, *self.claimed)
            verdict, own, peer = self.member.answer("joined:1").split()
            assert (verdict, own.split("=")[0], peer.split("=")[0]) == ("ok", OWN, PEER)
            self.incarnation = peer.split("=")[1]
        return running

    def agree(self, instance, is_source, count):
        self.member.tell("agree", 1, instance, is_source, count)
        equal(self.member.answer(f"agreed:{instance}"), f"ok {1 - is_source}")

    def fetch(self, key, step=0, seconds=DEADLINE_S):
        self.member.tell("fetch", self.address, key, step, PEER, self.incarnation, seconds)

    def fetched(self, key):
        return self.member.answer(f"fetched:{key}")

def done(running):
    return running.result(DEADLINE_S)


def receive(instance, count, timeout_s=0):
    with tf.device(PEER):
        return tf.raw_ops.CollectiveBcastRecvV2(T=tf.float32, shape=[count], instance_key=instance,
                                                timeout_seconds=timeout_s, **GROUP)


def send(instance, count):
    with tf.device(PEER):
        return tf.raw_ops.CollectiveBcastSendV2(input=tf.range(1.0, count + 1), instance_key=instance, **GROUP)


def add_up(instance, values):
    with tf.device(PEER):
        return tf.raw_ops.CollectiveReduceV2(input=tf.constant(values), instance_key=instance, ordering_token=[],
                                             merge_op="Add", final_op="Id", **GROUP)


def down(instance):
    """The key under which TensorFlow asks us for a broadcast: group, instance, frame, iteration, part, from, to."""
    return f"1:{instance}:0:0:0:0:1"


def up(instance):
    return f"1:{instance}:0:0:0:1:0"


def broadcast(pair, instance, count, receiver=receive):
    """Ours, to TensorFlow."""
    running = pair.run(receiver, instance, count)
    pair.agree(instance, 1, count)
    pair.member.tell("offer", down(instance), count, instance)
    seen = done(running).numpy()
    equal(pair.member.answer(f"offered:{down(instance)}"), "ok")
    assert len(seen) == count and all(seen == tf.range(count, dtype=tf.float32).numpy() + instance), seen


def gather(pair, instance, count):
    """TensorFlow's broadcast, to us."""
    running = pair.run(send, instance, count)
    pair.agree(instance, 0, count)
    pair.fetch(up(instance))
    verdict, seen, first, total = pair.fetched(up(instance)).split()
    wanted = sum(i * (i + 1) for i in range(count))
    assert (verdict, int(seen), float(first)) == ("ok", count, 1), (verdict, seen, first)
    assert abs(float(total) - wanted) <= wanted * 1e-9, (total, wanted)
    done(running)


def tensors_go_both_ways():
    pair = Pair()
    for instance, count in enumerate((3, 1, 0, 1 << 20), 100):
        broadcast(pair, instance, count)
    for instance, count in enumerate((3, 1, 1 << 20), 200):
        gather(pair, instance, count)
    compiled = tf.function(receive)
    for _ in range(2):
        broadcast(pair, 300, 3, compiled)
    return pair


def tensorflow_leads_and_we_ask():
    """All four questions go to TensorFlow: GetStatus, CompleteGroup, CompleteInstance, RecvBuf."""
    pair = Pair(tensorflow_leads=True)
    pair.member.tell("devices", DEADLINE_S)
    verdict, *devices = pair.member.answer("devices").split()
    equal(verdict, "ok")
    broadcast(pair, 100, 3)
    gather(pair, 200, 5)
    assert f"{PEER}={pair.incarnation}" in devices, devices
    return pair


def a_ring_is_passed_on():
    """All reduced by two: each sends its part, adds the other's to the other part, and sends the sum."""
    pair = Pair()
    running = pair.run(add_up, 100, [1.0] * 64)  # of which TensorFlow makes 48 and 16
    ring = "1:100:0:0:{}:{}:{}".format  # pass, part, from
    pair.member.tell("offer", ring(0, 0, 0), 48, 10)
    pair.fetch(ring(0, 1, 1))
    equal(pair.fetched(ring(0, 1, 1)), "ok 16 1 120")
    pair.member.tell("offer", ring(1, 1, 0), 16, 10 + 48 + 1)
    pair.fetch(ring(1, 0, 1))
    equal(pair.fetched(ring(1, 0, 1)), f"ok 48 11 {sum(i * (11 + i) for i in range(48))}")
    equal(list(done(running).numpy()), list(range(11, 11 + 64)))
    return pair


def both_refuse_in_the_same_words():
    """The same is asked of TensorFlow and of ourselves."""
    pair = Pair()
    broadcast(pair, 100, 3)
    member = pair.member
    for address, device, incarnation in ((pair.address, PEER, pair.incarnation), (member.address, OWN, member.incarnation)):
        elsewhere = device.replace("task:0", "task:5")
        member.tell("fetch", address, "stranger", 0, elsewhere, incarnation, DEADLINE_S)
        equal(pair.fetched("stranger"), f"INVALID_ARGUMENT {elsewhere} unknown device.")
        member.tell("fetch", address, "restarted", 0, device, 7, DEADLINE_S)
        seen = pair.fetched("restarted")
        assert seen.startswith(f"FAILED_PRECONDITION RecvBuf expects a different device incarnation: 7 vs. {incarnation}. "
                               f'Your worker job that contains the device ("{device}") was probably restarted. '), seen
        member.tell("fetch", address, "absent", 0, device, incarnation, 1)
        assert pair.fetched("absent").startswith("DEADLINE_EXCEEDED")
        for _ in range(2):
            member.tell("fetch", address, f"wanted:{device}", 0, device, incarnation, DEADLINE_S)
        equal(pair.fetched(f"wanted:{device}"), f"INTERNAL Second consumer arrived for key wanted:{device}")
    return pair


def a_key_belongs_to_its_step():
    pair = Pair()
    broadcast(pair, 100, 3)
    running = pair.run(send, 101, 3)
    pair.agree(101, 0, 3)
    pair.fetch(up(101), step=77, seconds=1)
    assert pair.fetched(up(101)).startswith("DEADLINE_EXCEEDED")
    pair.fetch(up(101))
    equal(pair.fetched(up(101)), "ok 3 1 8")
    done(running)
    return pair


def a_tensor_of_another_size_is_refused():
    pair = Pair()
    running = pair.run(receive, 100, 3)
    pair.agree(100, 1, 3)
    pair.member.tell("offer", down(100), 4, 1)
    fails(running, tf.errors.InternalError, "Tensor Size Mismatch: RecvBufResponse returned 16 bytes, expected: 12")
    return pair


def who_claims_another_incarnation_is_refused():
    pair = Pair(7)
    running = pair.run(receive, 100, 3)
    pair.agree(100, 1, 3)
    fails(running, tf.errors.FailedPreconditionError, "RecvBuf expects a different device incarnation: 7 vs.")
    return pair


def who_gives_up_leaves_no_place():
    """TensorFlow's call is cancelled when its collective times out: then another may ask for the key."""
    pair = Pair()
    broadcast(pair, 100, 3)
    running = pair.run(receive, 101, 3, 2)
    pair.agree(101, 1, 3)
    fails(running, tf.errors.DeadlineExceededError, "Collective has timed out")
    member, seen = pair.member, "INTERNAL Second consumer"
    while seen.startswith("INTERNAL Second consumer"):  # the cancellation is on its way
        member.tell("fetch", member.address, down(101), 0, OWN, member.incarnation, 1)
        seen = pair.fetched(down(101))
    assert seen.startswith("DEADLINE_EXCEEDED"), seen
    return pair


def an_abort_of_tensorflow_ends_what_we_wait_for():
    pair = Pair()
    broadcast(pair, 100, 3)
    for _ in range(2):
        pair.fetch("wanted")  # one of the two answers shows that the other waits
    equal(pair.fetched("wanted"), "INTERNAL Second consumer arrived for key wanted")
    pair.here.abort_collective_ops(14, "enough of it")
    equal(pair.fetched("wanted"), "UNAVAILABLE Collective ops is aborted by: enough of it")
    pair.fetch("wanted")
    equal(pair.fetched("wanted"), "UNAVAILABLE Collective ops is aborted by: enough of it")
    return pair


def our_abort_ends_what_tensorflow_waits_for():
    pair = Pair()
    running = pair.run(receive, 100, 3)
    pair.agree(100, 1, 3)
    pair.member.tell("abort", 14, "enough")
    fails(running, tf.errors.UnavailableError, "enough")
    pair.member.tell("offer", down(101), 3, 1)
    equal(pair.member.answer(f"offered:{down(101)}"), "UNAVAILABLE")
    return pair


def fails(running, error, text):
    try:
        done(running)
    except error as seen:
        assert text in str(seen), seen
    else:
        raise AssertionError("it has not failed")


# TensorFlow 2.21 itself dies of SIGSEGV in 1 of 40 timeouts: CancellableCall, in whose RecvBuf the collective waited, deregisters
# its callback from a CancellationManager that the timed-out operation has freed. Such a run has judged nothing and is made again.
RUNS_MAX = collections.defaultdict(lambda: 1, {who_gives_up_leaves_no_place: 5})
CASES = (tensors_go_both_ways, tensorflow_leads_and_we_ask, a_ring_is_passed_on, both_refuse_in_the_same_words, a_key_belongs_to_its_step,
         a_tensor_of_another_size_is_refused, who_claims_another_incarnation_is_refused, who_gives_up_leaves_no_place,
         an_abort_of_tensorflow_ends_what_we_wait_for, our_abort_ends_what_tensorflow_waits_for)


def run(case):
    try:
        case().member.close()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)  # TensorFlow's own end would ask the member, which has gone


def run_in_fork(case):
    """Its exit code; minus the signal that killed it."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(DEADLINE_S)
        run(case)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main():
    for case in CASES:
        for _ in range(RUNS_MAX[case]):
            code = run_in_fork(case)
            if code != -signal.SIGSEGV:
                break
        assert code == 0, f"{case.__name__}: {code}"
        print("passed", case.__name__, flush=True)


if len(sys.argv) == 1:
    needs.program("collective_member")
    python = needs.stranger_python("tensorflow")
    os.execve(python, [python, __file__, "forks"], dict(os.environ, CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3"))
tf = importlib.import_module("tensorflow")
main()
