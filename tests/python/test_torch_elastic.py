"""An elastic c10d group: PyTorch's DistributedDataParallel inside of muster.torch.Elastic, whose workers die and come back."""
# Needs: torch
PRELOAD = "torch,torch._dynamo,torch.distributed.fsdp,muster.torch.backend"
PROGRAM = """
import torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
torch.set_num_threads(1)
import muster.torch
import muster.torch.backend as backend
backend.init_process_group(elastic=True)
assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
torch.manual_seed(os.getpid() if is_first else 3)    # members begin with the weights of rank 0
model = muster.torch.DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)))
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
elastic = muster.torch.Elastic(model, optimizer)
elastic.rehearse(lambda: F.cross_entropy(model(torch.randn(4, 6)), torch.zeros(4, dtype=torch.long)).backward())
generator = torch.Generator()
for step in elastic.steps(10**6):
    with step:
        assert (dist.get_rank(), dist.get_world_size()) == (step.rank, step.size)
        x = torch.randn(24, 6, generator=generator.manual_seed(step.step))[step.rank::step.size]
        stop = torch.tensor(float(os.path.exists("stop")))
        step.weight = len(x)
        optimizer.zero_grad()
        F.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
        dist.all_reduce(stop, op=dist.ReduceOp.MAX)
        optimizer.step()
    say("step", step.step, step.size, step.restored)
    if stop.item():
        break
say("weights", *[repr(each) for p in model.parameters() for each in p.flatten().tolist()])
elastic.close()
dist.destroy_process_group()
"""


def test_ddp_trains_while_workers_die_and_come_back(job):
    run = job(PROGRAM, 2)
    for victim in (1, 0):
        run.wait_step(run.step() + 20)
        before = run.wait_said("step", victim)
        run.kill(victim)
        run.wait_until(lambda: any(pid != before and words[0] == "step" for _, pid, words in run.said(victim)), "the worker back")
    run.stop()

    run.end()

    weights = {task: words[1:] for task, _, words in run.said() if words[0] == "weights"}
    assert set(weights) == {0, 1} and weights[0] == weights[1]
    steps = sorted({int(words[1]) for _, _, words in run.said() if words[0] == "step"})
    assert steps == list(range(1, len(steps) + 1))
    assert any(words[3] == "True" for _, _, words in run.said() if words[0] == "step")


def test_a_step_after_a_death_in_a_reduce_scatter_has_all(job):
    run = job("""
import torch, torch.distributed as dist
torch.set_num_threads(1)
import muster.torch
import muster.torch.backend as backend
backend.init_process_group(elastic=True)
model = torch.nn.Linear(2, 1)
elastic = muster.torch.Elastic(model, torch.optim.SGD(model.parameters(), 0.1))
for step in elastic.steps(10**6):
    with step:
        if elastic.task == 1 and is_first:
            os.kill(os.getpid(), 9)
        part, is_back = torch.zeros(2), torch.tensor(float(not is_first))
        dist.reduce_scatter_tensor(part, torch.arange(2.0 * step.size))
        dist.all_reduce(is_back, op=dist.ReduceOp.MAX)
        size = step.size
    if is_back.item() and size == 2:
        break
say("part", is_first, *part.tolist())
elastic.close()
dist.destroy_process_group()
""", 2)

    run.end()

    parts = {task: words[1:] for task, _, words in run.said() if words[0] == "part"}
    assert {task: is_first for task, (is_first, *_) in parts.items()} == {0: "True", 1: "False"}, run.text()
    assert sorted(part for _, *part in parts.values()) == [["0.0", "2.0"], ["4.0", "6.0"]], parts


def test_models_in_parts_and_groups_of_some_members_are_refused(alone):
    done = alone("""
import torch, torch.distributed as dist
import muster.torch
import muster.torch.backend as backend
from torch.distributed.fsdp import fully_shard
backend.init_process_group(elastic=True)
for call in (lambda: dist.new_group([0]), lambda: muster.torch.Elastic(model, torch.optim.SGD(model.parameters(), 0.1))):
    model = torch.nn.Sequential(torch.nn.Linear(2, 1))
    fully_shard(model)
    try:
        call()
        assert False
    except NotImplementedError as error:
        print(error)
""")
    assert done.returncode == 0, done.stderr
    groups, parts = done.stdout.splitlines()
    assert "no groups of some of its members" in groups and "without elastic" in groups
    assert "whole model, got a part of parameter 0.weight" in parts and "fixed number of workers" in parts
