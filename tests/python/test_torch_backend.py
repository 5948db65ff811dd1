"""The c10d backend "muster": programs that know nothing of muster but its init_process_group."""
# Needs: torch
import pytest

PRELOAD = "torch,torch._dynamo,muster.torch.backend"
BEGIN = """
import torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
torch.set_num_threads(1)
import muster.torch.backend as backend
backend.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
"""


def test_operations_have_their_results(job):
    run = job(BEGIN + """
for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
    x = torch.full((3, 2), rank + 1).to(dtype)
    dist.all_reduce(x)
    assert (x == 3).all(), x
    y = torch.full((4,), rank).to(dtype)
    dist.broadcast(y, 1)
    assert (y == 1).all()
for dtype in (torch.int16, torch.float8_e4m3fn, torch.float8_e5m2):
    y = torch.full((4,), float(rank + 1)).to(dtype)
    both = torch.zeros(8).to(dtype)
    dist.all_gather_into_tensor(both, y)
    dist.broadcast(y, 1)
    assert (y.float() == 2).all() and both.float().tolist() == [1.0] * 4 + [2.0] * 4
try:
    dist.all_reduce(y)
    assert False
except Exception as error:
    assert "8-bit floats are only moved" in str(error), error
flags = torch.tensor([rank == 0, True, False])
for op, expected in ((dist.ReduceOp.SUM, [True, True, False]), (dist.ReduceOp.PRODUCT, [False, True, False])):
    x, part = flags.clone(), torch.zeros(1, dtype=torch.bool)
    dist.all_reduce(x, op)
    dist.reduce_scatter_tensor(part, flags[:2], op)
    assert x.tolist() == expected and part.tolist() == expected[rank:rank + 1], (x, part)
try:
    dist.all_reduce(torch.ones(3).to_sparse())
    assert False
except NotImplementedError as error:
    assert "takes dense tensors" in str(error), error
x, part = torch.tensor([1 + 1j * rank, 2]), torch.zeros(1, dtype=torch.complex64)
dist.reduce_scatter_tensor(part, x)
dist.reduce(y := x.clone(), 0)
assert part.tolist() == [2 + 1j if rank == 0 else 4] and y.tolist() == ([2 + 1j, 4] if rank == 0 else [1 + 1j, 2]), (part, y)
parts = [torch.zeros(2, dtype=torch.complex64) for _ in range(size)] if rank == 0 else None
dist.gather(x, parts, 0)
assert rank == 1 or parts[1].tolist() == [1 + 1j, 2]
out = torch.zeros(2 - 2 * rank, dtype=torch.complex64)    # rank 0 gets all
dist.all_to_all_single(out, x[:1], [1, 1] if rank == 0 else [0, 0], [1, 0])
assert rank == 1 or out.tolist() == [1, 1 + 1j], out
try:
    dist.reduce(y, 0, dist.ReduceOp.MAX)
    assert False
except NotImplementedError as error:
    assert "sums and means of complex numbers" in str(error), error
for factor in (0.5, torch.tensor(0.5)):
    half, x, part = dist._make_nccl_premul_sum(factor), torch.full((4,), rank + 1.0), torch.zeros(2)
    dist.reduce_scatter_tensor(part, x, op=half)
    dist.reduce(y := x.clone(), 1, op=half)
    dist.all_reduce(x, op=half)
    assert x.tolist() == [1.5] * 4 and part.tolist() == [1.5] * 2 and y.tolist() == [1.5 if rank == 1 else 1.0] * 4, (x, part, y)
x = torch.arange(12.0).view(3, 4).t()[1:] + rank    # not contiguous
expected = x * 2 + (1 if rank == 0 else -1)
dist.all_reduce(x)
assert torch.equal(x, expected), (x, expected)
parts = [torch.zeros(2) for _ in range(size)]
dist.all_gather(parts, torch.full((2,), float(rank)))
assert [part[0].item() for part in parts] == [0, 1]
parts = [[torch.zeros(2), torch.zeros(1, 3)] for _ in range(size)]    # for each rank one of each
dist.all_gather_coalesced(parts, [torch.full((2,), rank + 5.0), torch.full((1, 3), rank + 7.0)])
assert [[one.unique().item() for one in each] for each in parts] == [[5, 7], [6, 8]], parts
out = torch.zeros(2 * size)
dist.all_gather_into_tensor(out, torch.full((2,), float(rank)))
assert out.tolist() == [0, 0, 1, 1]
part = torch.zeros(3)
dist.reduce_scatter_tensor(part, torch.arange(6.0), op=dist.ReduceOp.AVG)
assert part.tolist() == [3 * rank, 3 * rank + 1, 3 * rank + 2]
out = torch.zeros(2)
dist.all_to_all_single(out, torch.tensor([10.0 * rank, 10.0 * rank + 1]))
assert out.tolist() == [rank, 10 + rank]
out = torch.zeros(1 + rank)
dist.all_to_all_single(out, torch.tensor([10.0 * rank, 10.0 * rank + 1, 10.0 * rank + 2])[:2 if rank == 0 else 1],
                       [1, 0] if rank == 0 else [1, 1], [1, 1] if rank == 0 else [0, 1])
assert out.tolist() == ([0] if rank == 0 else [1, 10]), out
out = torch.zeros(2 + rank)    # the sizes of rank 0 are equal
dist.all_to_all_single(out, torch.arange(2.0 + rank) + 10 * rank, [1, 1 + rank], [1, 1 + rank])
assert out.tolist() == ([0, 10] if rank == 0 else [1, 11, 12]), out
dist.all_to_all_single(torch.zeros(0), torch.zeros(0), [0, 0], [0, 0])
outs = [torch.zeros(2, 2), torch.zeros(1)]
dist.all_to_all(outs[:1] + [torch.zeros(0)] if rank == 0 else [outs[1], torch.zeros(0)], [torch.full((2, 2), 3.0), torch.ones(1)] if rank == 0 else [torch.zeros(0), torch.zeros(0)])
assert outs[rank].unique().item() == (3 if rank == 0 else 1)
parts = [torch.zeros(2) for _ in range(size)] if rank == 1 else None
dist.gather(torch.full((2,), rank + 5.0), parts, dst=1)
assert rank == 0 or [part[0].item() for part in parts] == [5, 6]
part = torch.zeros(2, dtype=torch.bfloat16)
dist.scatter(part, [torch.full((2,), 7.0).bfloat16(), torch.full((2,), 8.0).bfloat16()] if rank == 0 else None, src=0)
assert part.tolist() == [7 + rank] * 2
if rank == 0:
    dist.send(torch.arange(3.0), 1)
else:
    x = torch.zeros(3, 2)[:, 0]    # not contiguous
    dist.recv(x, 0)
    assert x.tolist() == [0, 1, 2]
x, y = torch.full((100000,), rank + 1.0), torch.zeros(100000)
for work in [dist.isend(x, 1 - rank), dist.irecv(y, 1 - rank)]:    # both send first
    work.wait()
assert (y == 2 - rank).all()
dist.isend(torch.ones(2), 1 - rank)    # nobody waits for it
dist.recv(y[:2], 1 - rank)
objects = [rank, "zero"] if rank == 0 else [None, None]
dist.broadcast_object_list(objects, 0)
assert objects == [0, "zero"]
work = dist.all_reduce(torch.ones(1), async_op=True); work.wait()
dist.barrier()
dist.destroy_process_group()
try:
    muster.torch.backend.init_process_group()
    assert False
except RuntimeError as error:
    assert "must be called once" in str(error) and "new_group" in str(error), error
say("done")
""", 2)

    run.end()
    assert len([words for _, _, words in run.said() if words[0] == "done"]) == 2


DDP = BEGIN + """
torch.manual_seed(rank)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)))
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
generator = torch.Generator().manual_seed(4)
for i in range(STEPS):
    x = torch.randn(8, 6, generator=generator); y = (x[:, 0] > 0).long()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x[rank::size]), y[rank::size])
    loss.backward()
    if i == 20 and rank == 2:
        os.kill(os.getpid(), 9)
    optimizer.step()
say("end", [repr(each) for p in model.parameters() for each in p.flatten().tolist()][0], sum(p.double().sum().item() for p in model.parameters()), loss.item())
"""



def test_an_all_reduce_of_any_tensor_is_seen_by_who_watches_operators(job):
    run = job(BEGIN + """
from torch.distributed.tensor.debug import CommDebugMode
scalar, parameter = torch.tensor(rank + 1.0), nn.Parameter(torch.full((3,), rank + 1.0))
dist.all_reduce(scalar)
with torch.no_grad():
    dist.all_reduce(parameter)
assert scalar.item() == 3 and (parameter == 3).all() and parameter.requires_grad
x = torch.full((3,), rank + 1.0)
work = dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True)
assert work.wait() and work.is_completed() and work.get_future().value()[0] is x and (x == 2).all()
dist.all_reduce(torch.zeros(0))
with CommDebugMode() as seen:
    dist.all_reduce(x)
assert seen.get_total_counts() == 1, seen.get_comm_counts()
with torch.profiler.profile() as profile:
    dist.all_reduce(x)
assert any(event.key == "c10d::allreduce_" for event in profile.key_averages()), profile.key_averages()
assert (x == 8).all(), x
group = dist.group.WORLD    # the other ways to call it
group.allreduce([x], op=dist.ReduceOp.SUM).wait()
group.allreduce(x).wait()
assert (x == 32).all(), x
dist.all_reduce(x)
assert (x == 64).all(), x
dist.destroy_process_group()
say("done")
""", 2)

    run.end()
    assert len([words for _, _, words in run.said() if words[0] == "done"]) == 2


def test_an_unmodified_ddp_program_has_the_results_of_gloo(job):
    muster_run = job(DDP.replace("STEPS", "30"), 2, preload="")
    gloo_run = job(DDP.replace("STEPS", "30").replace("import muster.torch.backend as backend\nbackend.init_process_group()", 'dist.init_process_group("gloo")'), 2)
    muster_run.end(), gloo_run.end()

    ends = {str(words[1:]) for run in (muster_run,) for _, _, words in run.said() if words[0] == "end"}
    assert {str(words[1:3]) for _, _, words in muster_run.said() if words[0] == "end"} == {str(words[1:3]) for _, _, words in gloo_run.said() if words[0] == "end"}, ends


def test_a_reduce_scatter_goes_on_behind_a_death(job):
    run = job(BEGIN + """
part = torch.zeros(2)
for i in range(40):
    if i == 20 and rank == 2:
        os.kill(os.getpid(), 9)
    dist.reduce_scatter_tensor(part, torch.arange(6.0))
    say("part", *part.tolist())
say("end", *part.tolist())
""", 3, "--max-restarts", "0")

    run.child.wait(120)
    ends = {task: words[1:] for task, _, words in run.said() if words[0] == "end"}
    assert ends == {0: ["0.0", "2.0"], 1: ["4.0", "6.0"]}, (ends, run.text())


def test_the_others_go_on_behind_a_death(job):
    run = job(DDP.replace("STEPS", "60"), 3, "--max-restarts", "0")

    run.child.wait(120)
    ends = {task: words[1:3] for task, _, words in run.said() if words[0] == "end"}
    assert set(ends) == {0, 1} and ends[0] == ends[1], (ends, run.text())


def test_a_worker_that_is_started_again_trains_nothing_alone(job):
    """It says why it waits, and ends with 0 when the others have."""
    run = job(DDP.replace("STEPS", "60"), 3)

    summary = run.end()

    ends = {task: words[1:3] for task, _, words in run.said() if words[0] == "end"}
    assert set(ends) == {0, 1} and ends[0] == ends[1], (ends, run.text())
    assert summary["kills"] == 1 and "Traceback" not in run.text(), run.text()
    assert "its group, whose size is fixed, goes on without it: it waits" in run.text(), run.text()


def test_a_timeout_of_the_program_is_that_of_each_operation(job):
    run = job("""
import datetime, torch, torch.distributed as dist, muster.torch.backend
dist.init_process_group("muster", timeout=datetime.timedelta(milliseconds=200))
if dist.get_rank() == 1:
    try:
        dist.barrier()
    except muster.DeadlineExceeded as error:
        say("late", error)
    open("go", "w").close()
wait_for("go")
os._exit(0)
""", 2, "--max-restarts", "0")
    run.wait_said("late", 1)
    run.child.wait(120)

    assert "rank 0 (worker:0) has not called barrier" in [" ".join(words) for _, _, words in run.said(1) if words[0] == "late"][0]
