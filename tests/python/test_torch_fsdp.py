"""FSDP2 programs on the c10d backend "muster" that know nothing of it but its init_process_group."""
# Needs: torch
BEGIN = """
import copy, torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.checkpoint.state_dict import get_model_state_dict, StateDictOptions
torch.set_num_threads(1)
INIT
rank, size = dist.get_rank(), dist.get_world_size()
"""
MUSTER = "import muster.torch.backend as backend; backend.init_process_group()"
GLOO = 'dist.init_process_group("gloo")'
PRELOAD = "torch,torch.distributed.fsdp,torch.distributed.checkpoint.state_dict"  # once for all workers of a job
PROGRAM = BEGIN + """
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
mesh = MESH
whole = copy.deepcopy(model)
options = {"mesh": mesh}
for layer in (model[0], model[2]):
    fully_shard(layer, **options)
fully_shard(model, **options)
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
plain = torch.optim.AdamW(whole.parameters(), 0.01)
generator = torch.Generator().manual_seed(4)
for i in range(STEPS):
    x = torch.randn(8, 6, generator=generator); y = (x[:, 0] > 0).long()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x[rank::size]).float(), y[rank::size])
    loss.backward()
    if i == 8 and rank == VICTIM:
        os.kill(os.getpid(), 9)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    plain.zero_grad()
    F.cross_entropy(whole(x), y).backward()    # the same by this process alone
    nn.utils.clip_grad_norm_(whole.parameters(), 1.0)
    plain.step()
    say("step", i)
full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
say("differs", max((p - full[name]).abs().max().item() for name, p in whole.state_dict().items()))
say("end", repr(loss.item()), repr(norm.full_tensor().item()), *[repr(each) for p in full.values() for each in p.double().flatten().tolist()])
dist.barrier()
dist.destroy_process_group()
"""


def _program(init, mesh="None", steps=12, victim=-1):
    text = PROGRAM.replace("INIT", init).replace("MESH", mesh)
    return text.replace("STEPS", str(steps)).replace("VICTIM", str(victim))


def _ends(run):
    return {task: words[1:] for task, _, words in run.said() if words[0] == "end"}


def test_an_unmodified_program_has_the_results_of_gloo(job):
    runs = [job(_program(init), 2) for init in (MUSTER, GLOO)]
    for run in runs:
        run.end()

    ours, theirs = map(_ends, runs)
    assert set(ours) == {0, 1} and ours[0][1:] == ours[1][1:]
    assert ours == theirs


def test_shards_within_rows_and_replicas_in_columns_train_alike(job):
    mesh = 'init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))'
    run = job(_program(MUSTER, mesh), 4)

    run.end()

    ends = _ends(run)
    assert set(ends) == {0, 1, 2, 3} and all(each[1:] == ends[0][1:] for each in ends.values())
    assert all(float(words[1]) < 1e-5 for _, _, words in run.said() if words[0] == "differs"), run.text()


def test_a_death_ends_the_others_with_aborted(job):
    """The shards of the dead one are nowhere else: the others cannot go on, and say so at once."""
    run = job(_program(MUSTER, steps=100000, victim=1), 2, "--max-restarts", "0")

    assert run.child.wait(120) != 0
    assert "Aborted" in run.text()
    assert max(int(words[1]) for _, _, words in run.said(0) if words[0] == "step") == 8
