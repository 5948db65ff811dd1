#!/usr/bin/env python3
"""One worker of torch_table, started by `muster run`: gloo and muster in the same processes, in alternating rounds.

usage: torch_peer.py reduce ROUNDS BYTES:ITERATIONS…    all_reduce through torch.distributed
       torch_peer.py step ROUNDS STEPS                  a training step of two small models
       torch_peer.py call CALLS                         what a call of the module takes, one member
       torch_peer.py kill                               steps of a small model, until a file "stop" is there
Results are lines of JSON in the file PEER_OUT; PEER_STORE, MEET_FILE and MEET_LIBRARY are given, too."""
import json
import os
import statistics
import sys
import time
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
warnings.simplefilter("ignore")

WARM_UP = 3
BATCH = 16


def tell(**line):
    with open(os.environ["PEER_OUT"], "a", encoding="ascii") as file:
        file.write(json.dumps(line) + "\n")


class Meeting:
    """The ranks of a job in shared memory: what takes longest counts."""

    def __init__(self, rank, size):
        from gloo_allreduce import open_meet
        self.rank, self.size = rank, size
        self.library, self.meet = open_meet(rank)  # binds this process to a processor

    def all(self):
        self.library.peer_meet_all(self.meet, self.size)

    def time(self, work):
        """us of the slowest rank."""
        self.all()
        begin = time.perf_counter()
        work()
        self.library.peer_meet_took(self.meet, self.rank, (time.perf_counter() - begin) * 1e6)
        self.all()
        return self.library.peer_meet_slowest(self.meet, self.size)


def open_groups():
    """This process's meeting, the group of gloo and that of muster."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    meeting = Meeting(rank, size)
    import torch
    import torch.distributed as distributed
    import muster.torch.backend as backend
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group("gloo", init_method=f"file://{os.environ['PEER_STORE']}", rank=rank, world_size=size)
    _, own_rank, own_size = next(backend._rendezvous("muster://"))  # pylint: disable=protected-access
    assert (own_rank, own_size) == (rank, size), (own_rank, own_size)
    return meeting, distributed.group.WORLD, distributed.new_group(backend="muster"), backend._strategy


def in_turns(rounds, contestants):
    """(name, contestant), in the other order in every other round."""
    for turn in range(rounds):
        yield from list(contestants.items())[:: 1 if turn % 2 == 0 else -1]


def reduce(rounds, specs):
    meeting, gloo, group, strategy = open_groups()
    import torch
    import torch.distributed as distributed
    for spec in specs:
        size, iterations = map(int, spec.split(":"))
        index = torch.arange(size // 4)
        pattern = ((index + meeting.rank) % 3).float()
        truth = sum(((index + rank) % 3).float() for rank in range(meeting.size))
        mapped = strategy.zeros(size // 4)
        contestants = {"gloo": (torch.empty(size // 4), gloo), "muster": (torch.empty(size // 4), group),
                       "mapped": (torch.frombuffer(mapped, dtype=torch.float32), group)}
        medians = {name: [] for name in contestants}
        for name, (tensor, where) in in_turns(rounds, contestants):
            samples = []
            for _ in range(WARM_UP + iterations):
                tensor.copy_(pattern)
                samples.append(meeting.time(lambda: distributed.all_reduce(tensor, group=where)))
                assert torch.equal(tensor, truth), name
            medians[name].append(statistics.median(samples[WARM_UP:]))
        if meeting.rank == 0:
            tell(bytes=size, medians_us=medians)
        del contestants, tensor


def models(torch):
    """Two small ones, as programs have that learn digits."""
    nn = torch.nn
    yield "cnn", (1, 12, 12), nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                            nn.Linear(256, 24), nn.ReLU(), nn.Linear(24, 10))
    yield "mlp", (256,), nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU(),
                                       nn.Linear(256, 10))


class Contestant:
    """A model with its optimizer, and the way its gradients become those of all."""

    def __init__(self, torch, model, wrap):
        import copy
        self.torch, self.model = torch, copy.deepcopy(model)
        self.forward, self.average = wrap(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    def step(self, batch, target):
        self.optimizer.zero_grad(set_to_none=False)
        self.torch.nn.functional.cross_entropy(self.forward(batch), target).backward()
        self.average()
        self.optimizer.step()


def own_loop(torch, strategy):
    """Gradients flat in mapped memory, one mean."""
    def wrap(model):
        memory = strategy.zeros(sum(each.numel() for each in model.parameters()))
        flat, at = torch.frombuffer(memory, dtype=torch.float32), 0
        for each in model.parameters():
            each.grad = flat[at:at + each.numel()].view_as(each)
            at += each.numel()
        return model, lambda: strategy.all_reduce(memory, "mean")
    return wrap


def step(rounds, steps):
    meeting, gloo, group, strategy = open_groups()
    import torch
    parallel = torch.nn.parallel.DistributedDataParallel
    ways = {"gloo": lambda model: (parallel(model, process_group=gloo), lambda: None),
            "muster": lambda model: (parallel(model, process_group=group), lambda: None),
            "own loop": own_loop(torch, strategy),
            "alone": lambda model: (model, lambda: None)}
    torch.manual_seed(7)
    for kind, shape, model in list(models(torch)):  # before the ranks draw different numbers
        contestants = {name: Contestant(torch, model, wrap) for name, wrap in ways.items()}
        medians = {name: [] for name in contestants}
        for name, one in in_turns(rounds, contestants):
            torch.manual_seed(meeting.rank)
            batches = [(torch.randn(BATCH, *shape), torch.randint(10, (BATCH,))) for _ in range(WARM_UP + steps)]
            samples = [meeting.time(lambda: one.step(batch, target)) for batch, target in batches]
            medians[name].append(statistics.median(samples[WARM_UP:]))
        sums = {name: sum(each.double().sum().item() for each in one.model.parameters()) for name, one in contestants.items()}
        assert abs(sums["gloo"] - sums["muster"]) < 1e-3 and abs(sums["gloo"] - sums["own loop"]) < 1e-3, sums
        if meeting.rank == 0:
            tell(model=kind, parameters=sum(each.numel() for each in model.parameters()), medians_us=medians)


def call(calls):
    """us of one all_reduce of 1 KiB from a NumPy array, in blocks of 1,000."""
    import numpy
    import muster
    os.sched_setaffinity(0, {0})
    with muster.Strategy() as strategy:
        strategy.begin()
        array = numpy.zeros(256, numpy.float32)
        blocks = []
        for _ in range(calls // 1000):
            begin = time.perf_counter()
            for _ in range(1000):
                strategy.all_reduce(array)
            blocks.append((time.perf_counter() - begin) * 1e3)
        strategy.commit()
    tell(call_us=statistics.median(blocks))


def kill():
    """Says when each step was committed, and by how many."""
    rank = int(os.environ["RANK"])
    import torch
    import muster.torch
    torch.set_num_threads(1)
    torch.manual_seed(7)
    _, shape, model = next(models(torch))
    optimizer = torch.optim.AdamW(model.parameters(), 0.001)
    elastic = muster.torch.Elastic(model, optimizer)
    stop = torch.zeros(1)
    warm = torch.nn.functional.cross_entropy(model(torch.randn(BATCH, *shape)), torch.randint(10, (BATCH,)))
    warm.backward()  # torch imports and makes much in its first pass: not while the others wait
    with open(f"{os.environ['PEER_OUT']}.{rank}.{os.getpid()}", "w", buffering=1, encoding="ascii") as log:
        for each in elastic.steps(10**9):
            with each:
                generator = torch.Generator().manual_seed(each.step * 64 + each.rank)
                batch, target = torch.randn(BATCH, *shape, generator=generator), torch.randint(10, (BATCH,), generator=generator)
                stop.fill_(os.path.exists(os.environ["PEER_OUT"] + ".stop"))
                elastic.strategy.all_reduce(stop.numpy(), "max")
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(batch), target).backward()
                each.weight = BATCH
                optimizer.step()
            print(each.step, elastic.size, time.monotonic_ns(), file=log)
            if stop[0]:
                break
    elastic.close()


def main():
    word, *words = sys.argv[1:]
    if word == "reduce":
        reduce(int(words[0]), words[1:])
    elif word == "step":
        step(int(words[0]), int(words[1]))
    elif word == "call":
        call(int(words[0]))
    else:
        kill()


main()
