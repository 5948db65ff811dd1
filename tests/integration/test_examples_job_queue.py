#!/usr/bin/env python3
"""examples/job_queue on a registry: workers and servers are killed, every job has one result."""
import base64
import os
import pathlib
import signal
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import guard

guard.enter()
import interop_roles as roles
import needs
from example_services import Service

needs.stranger("grpcurl")


def encode(text):
    return base64.b64encode(text.encode()).decode()


def decode(text):
    return base64.b64decode(text).decode()


def submit(queue, job, payload="p"):
    found, status = queue.ask("job_queue.JobQueue/Submit", {"id": job, "payload": encode(payload)})
    return found[0]["id"] if found else status


def result(queue, job):
    return decode(queue.ask("job_queue.JobQueue/Wait", {"id": job})[0][0]["result"])


def done(job, text):
    return {"done": {"id": job, "result": encode(text)}}


def check_one_worker(queue):
    assert submit(queue, "first", "payload") == "first"
    assert submit(queue, "first") == "AlreadyExists"
    assert submit(queue, "a/b") == "InvalidArgument"
    worker = queue.stream("job_queue.JobQueue/Work")
    worker.send({})
    job = worker.hear()
    assert (job["id"], decode(job["payload"])) == ("first", "payload")
    worker.send(done("first", "made"))  # and asks for the next one, which is not there yet
    assert result(queue, "first") == "made"
    second = submit(queue, "")  # the queue names it
    assert worker.hear()["id"] == second
    return worker, second


def check_death_of_a_worker(queue, worker, job):
    """Its job goes to another, at once: the server sees the stream end."""
    other = queue.stream("job_queue.JobQueue/Work")
    other.send({})
    worker.kill()
    assert other.hear()["id"] == job
    return other


def check_sizes(queue):
    assert submit(queue, "large", "x" * (1 << 20)) == "large"
    assert submit(queue, "larger", "x" * (1 << 20) + "x") == "InvalidArgument"
    worker = queue.stream("job_queue.JobQueue/Work")
    worker.send({})
    assert worker.hear()["id"] == "large"
    worker.send(done("large", "x" * (1 << 20) + "x"))
    worker.process.stdin.close()
    assert worker.process.wait(60) != 0  # and its job goes to another
    assert b"InvalidArgument" in worker.process.stderr.read()
    other = queue.stream("job_queue.JobQueue/Work")
    other.send({})
    assert other.hear()["id"] == "large"
    other.send(done("large", "x" * (1 << 20)))
    assert len(result(queue, "large")) == 1 << 20
    other.kill()


def check_death_of_a_registry(folder):
    """It dies with a job that is being given back. The lease of the queue server lives on, so nobody else would free it."""
    data = ["--data", os.path.join(folder, "registry.db")]
    registry = roles.Server([needs.program("muster"), "registry", "--listen", "127.0.0.1:0", *data])
    queue = Service("job_queue", "--registry", f"127.0.0.1:{registry.port}")
    submit(queue, "held")
    worker = queue.stream("job_queue.JobQueue/Work")
    worker.send({})
    assert worker.hear()["id"] == "held"
    registry.process.send_signal(signal.SIGSTOP)
    worker.kill()
    for _ in range(20):  # by then the queue server has seen it, and asked the registry
        assert queue.ask("job_queue.JobQueue/GetCount")[0][0]["taken"] == "1"
    registry.process.kill()
    registry.process.wait()
    registry = roles.Server([needs.program("muster"), "registry", "--listen", f"127.0.0.1:{registry.port}", *data])
    other = queue.stream("job_queue.JobQueue/Work")
    other.send({})
    assert other.hear()["id"] == "held"
    other.kill()
    assert queue.stop() == 0
    assert registry.stop() == 0


def check_death_of_a_server(queue, heir, worker, job):
    """Its lease ends, and the job is taken by a worker of another server."""
    other = heir.stream("job_queue.JobQueue/Work")
    other.send({})
    queue.kill()
    assert other.hear()["id"] == job  # after the lease, 10 s
    worker.kill()
    other.send(done(job, "by another"))
    assert result(heir, job) == "by another"
    other.process.stdin.close()
    assert other.process.wait(60) == 0


def check_many(first, second, rounds=7):
    """Two servers, two workers each: every job is given to one of them only."""
    workers = [queue.stream("job_queue.JobQueue/Work") for queue in (first, first, second, second)]
    for i in range(rounds * len(workers)):
        submit((first, second)[i % 2], f"many{i}")
    seen = []
    for worker in workers:
        worker.send({})
    for _ in range(rounds):
        jobs = [worker.hear()["id"] for worker in workers]
        seen += jobs
        for worker, job in zip(workers, jobs):
            worker.send(done(job, "done " + job))
    assert sorted(seen) == sorted(f"many{i}" for i in range(rounds * len(workers))), seen
    for job in seen:
        assert result(second, job) == "done " + job
    for worker in workers:
        worker.kill()


def main():
    registry = roles.Server([needs.program("muster"), "registry", "--listen", "127.0.0.1:0"])
    place = ["--registry", f"127.0.0.1:{registry.port}"]
    queue, heir = Service("job_queue", *place), Service("job_queue", *place)
    worker, job = check_one_worker(queue)
    worker = check_death_of_a_worker(queue, worker, job)
    check_sizes(queue)
    check_death_of_a_server(queue, heir, worker, job)
    third = Service("job_queue", *place)
    assert result(third, "first") == "made"  # results outlive servers
    check_many(heir, third)
    assert heir.ask("job_queue.JobQueue/Forget", {"id": "first"})[1] == ""
    assert heir.ask("job_queue.JobQueue/Forget", {"id": "first"})[1] == "FailedPrecondition"
    assert submit(heir, "first") == "first"
    waiting = third.stream("job_queue.JobQueue/Wait", {"id": "first"})
    assert heir.stop() == 0
    assert third.stop() == 0
    assert waiting.hear() is None
    assert registry.stop() == 0
    with tempfile.TemporaryDirectory() as folder:
        check_death_of_a_registry(folder)
    print("ok")


main()
