"""Groups of some ranks in the c10d backend "muster", and messages with tags."""
# Needs: torch
import pytest

PRELOAD = "torch,torch._dynamo,torch.distributed.device_mesh,muster.torch.backend"
BEGIN = """
import torch, torch.distributed as dist
torch.set_num_threads(1)
import muster.torch.backend as backend
backend.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
"""


def test_groups_have_their_own_operations(job):
    run = job(BEGIN + """
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
columns, rows = mesh["replicate"].get_group(), mesh["shard"].get_group()
assert dist.get_process_group_ranks(rows) == [rank // 2 * 2, rank // 2 * 2 + 1]
assert dist.get_process_group_ranks(columns) == [rank % 2, rank % 2 + 2]
other = rank ^ 1
for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
    x = torch.full((3, 2), rank + 1).to(dtype)
    dist.all_reduce(x, group=rows)
    assert (x == rank + 1 + other + 1).all(), x
    y = torch.full((4,), rank).to(dtype)
    dist.broadcast(y, rank // 2 * 2 + 1, group=rows)
    assert (y == rank // 2 * 2 + 1).all()
    z = torch.full((2,), rank).to(dtype)
    dist.all_reduce(z, op=dist.ReduceOp.MAX, group=columns)
    assert (z == rank % 2 + 2).all()
three = dist.new_group([0, 1, 3])
if rank != 2:
    x = torch.arange(100000.0) + rank    # by parts
    dist.all_reduce(x, op=dist.ReduceOp.AVG, group=three)
    assert torch.equal(x, (torch.arange(100000.0) * 3 + 4) / 3)
    place = dist.get_group_rank(three, rank)
    out = torch.zeros(6)
    dist.all_gather_into_tensor(out, torch.full((2,), float(rank)), group=three)
    assert out.tolist() == [0, 0, 1, 1, 3, 3]
    part = torch.zeros(2)
    dist.reduce_scatter_tensor(part, torch.arange(6.0), group=three)
    assert part.tolist() == [6 * place, 6 * place + 3]
    x = torch.full((2,), float(rank))
    dist.reduce(x, 3, group=three)
    assert rank != 3 or x.tolist() == [4, 4]
    parts = [torch.zeros(2) for _ in range(3)] if rank == 1 else None
    dist.gather(torch.full((2,), float(rank)), parts, dst=1, group=three)
    assert rank != 1 or [part[0].item() for part in parts] == [0, 1, 3]
    part = torch.zeros(2)
    dist.scatter(part, [torch.full((2,), 7.0 + i) for i in range(3)] if rank == 0 else None, src=0, group=three)
    assert part.tolist() == [7 + place] * 2
    out = torch.zeros(3)
    dist.all_to_all_single(out, torch.tensor([10.0 * place + i for i in range(3)]), group=three)
    assert out.tolist() == [place, 10 + place, 20 + place]
    out = torch.zeros(3 * (place + 1))
    dist.all_to_all_single(out, torch.tensor([float(place)] * 6), [place + 1] * 3, [1, 2, 3], group=three)
    assert out.tolist() == [0] * (place + 1) + [1] * (place + 1) + [2] * (place + 1)
    objects = [rank if rank == 3 else None]
    dist.broadcast_object_list(objects, 3, group=three)
    assert objects == [3]
    try:
        dist.reduce(torch.ones(4).to(torch.float8_e4m3fn), 3, group=three)
        assert False
    except muster.Mismatch as error:
        assert "8-bit floats are only moved" in str(error), error
    dist.barrier(group=three)
turned = dist.new_group([2, 0], sort_ranks=False)
if rank in (0, 2):
    out = torch.zeros(2)
    dist.all_gather_into_tensor(out, torch.tensor([float(rank)]), group=turned)
    assert out.tolist() == [2, 0]
half = dist.split_group(split_ranks=[[0, 3], [1, 2]])
x = torch.tensor([float(rank)])
dist.all_reduce(x, group=half)
assert x.item() == 3
dist.all_reduce(x)    # of all, as before
assert x.item() == 12
dist.barrier()
dist.destroy_process_group()
say("done")
""", 4)

    run.end()
    assert len([words for _, _, words in run.said() if words[0] == "done"]) == 4


def test_messages_are_found_by_their_tags(job):
    run = job(BEGIN + """
large = 100000
if rank == 0:
    works = [dist.isend(torch.full((large if tag % 2 else 3,), float(tag)), 1, tag=tag) for tag in range(6)]
    for work in works:
        work.wait()
else:
    for tag in (5, 0, 3, 4, 1, 2):    # not in the order in which they are sent
        x = torch.zeros(large if tag % 2 else 3)
        dist.recv(x, 0, tag=tag)
        assert (x == tag).all(), (tag, x)
works = [dist.irecv(x := torch.zeros(large), 1 - rank, tag=9)]
dist.send(torch.full((large,), float(rank)), 1 - rank, tag=9)    # both: the receive goes on meanwhile
works[0].wait()
assert (x == 1 - rank).all()
if rank == 0:
    work = dist.irecv(x, 1, tag=4)
    dist.barrier()    # rank 1 comes to it behind its send
    work.wait()
    assert (x == 7).all()
else:
    dist.send(torch.full((large,), 7.0), 0, tag=4)
    dist.barrier()
ops = [dist.P2POp(dist.isend, torch.full((2,), float(rank)), 1 - rank), dist.P2POp(dist.irecv, x[:2], 1 - rank)]
for work in dist.batch_isend_irecv(ops):
    work.wait()
assert x[0] == 1 - rank
try:
    if rank == 0:
        dist.send(torch.zeros(3), 1)
    else:
        dist.recv(torch.zeros(4), 0)
        assert False
except ValueError as error:
    assert "12 bytes" in str(error) and "16" in str(error), error
dist.destroy_process_group()
say("done")
""", 2)

    run.end()
    assert len([words for _, _, words in run.said() if words[0] == "done"]) == 2


def test_a_death_ends_the_operations_of_its_group_alone(job):
    run = job(BEGIN + """
three, pair = dist.new_group([0, 1, 2]), dist.new_group([2, 3])
x = torch.ones(100000)
if rank < 3:
    dist.all_reduce(x, group=three)
dist.barrier()
if rank == 1:
    os.kill(os.getpid(), 9)
if rank < 3:
    try:
        while True:
            dist.all_reduce(torch.ones(100000), group=three)
    except muster.Aborted as error:
        say("aborted", error)
left = dist.new_group([0, 2])
if rank in (0, 2):
    dist.all_reduce(y := torch.ones(1), group=left)
    say("left", y.item())
if rank > 1:
    for i in range(20):
        dist.all_reduce(x := torch.ones(1), group=pair)
    say("end", x.item())
dist.all_reduce(y := torch.ones(1))
say("others", y.item())
dist.destroy_process_group()
say("closed")
""", 4, "--max-restarts", "0")

    run.child.wait(120)
    ends = {task: words for task, _, words in run.said() if words[0] == "end"}
    assert ends == {2: ["end", "2.0"], 3: ["end", "2.0"]}, (ends, run.text())
    aborted = {task: " ".join(words[1:]) for task, _, words in run.said() if words[0] == "aborted"}
    assert set(aborted) == {0, 2} and all(text.startswith("all_reduce among ranks [0, 1, 2]: ") and "rank 1" in text and
                                          text.endswith("new_group of those that are left") for text in aborted.values()), aborted
    assert {task: words[1] for task, _, words in run.said() if words[0] == "left"} == {0: "2.0", 2: "2.0"}
    assert {task: words[1] for task, _, words in run.said() if words[0] == "others"} == {0: "3.0", 2: "3.0", 3: "3.0"}
    assert {task for task, _, words in run.said() if words[0] == "closed"} == {0, 2, 3}, run.text()


def test_a_group_is_reconfigured_without_the_dead_and_with_who_comes_back(job, alone):
    """PyTorch's interface of 2.15; the program agrees on the handles by files."""
    version, can = alone("import torch.distributed as dist; print(torch.__version__, hasattr(dist, '_reconfigure'))", prelude="import torch\n").stdout.split()
    if can != "True":
        pytest.skip(f"torch {version} has no _reconfigure: it is there from 2.15 on")
    run = job(BEGIN.replace("init_process_group()", "init_process_group(enable_reconfigure=True)").replace("rank, size", "_") + """
task = int(os.environ["RANK"])
assert dist._supports_reconfigure()
def agree(uuid, tasks):
    with open(f"{uuid}.{task}.new", "w") as file:
        file.write(dist._get_reconfigure_handle())
    os.rename(f"{uuid}.{task}.new", f"{uuid}.{task}")
    for each in tasks:
        wait_for(f"{uuid}.{each}")
    dist._reconfigure(uuid, [open(f"{uuid}.{each}").read() for each in tasks]).wait()
    assert (dist.get_rank(), dist.get_world_size()) == (tasks.index(task), len(tasks))
    out = torch.zeros(len(tasks))
    dist.all_gather_into_tensor(out, torch.tensor([float(task)]))
    assert out.tolist() == tasks, out
    say("agreed", uuid)
if is_first:
    agree(1, [0, 1, 2])
    if task == 1:
        os.kill(os.getpid(), 9)
    try:
        while True:
            dist.all_gather_into_tensor(torch.zeros(3), torch.zeros(1))
    except muster.Aborted:
        agree(2, [0, 2])
agree(3, [0, 1, 2])
dist.destroy_process_group()
""", 3)

    run.end()
    agreed = {task: sorted(words[1] for _, _, words in run.said(task) if words[0] == "agreed") for task in range(3)}  # of two lives
    assert agreed == {0: ["1", "2", "3"], 1: ["1", "3"], 2: ["1", "2", "3"]}, agreed
