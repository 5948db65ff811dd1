"""PyTorch's DistributedDataParallel, with gradients that are divided by the workers that gave theirs."""

import torch
from torch.futures import Future

from muster.torch import backend


def _mean(_, bucket):
    """The mean of a bucket over all that are there, in place. An error comes out of backward()."""
    gradients = bucket.buffer()
    backend.average(gradients)
    future = Future()
    future.set_result(gradients)
    return future


class DistributedDataParallel(torch.nn.parallel.DistributedDataParallel):
    """Use it after muster.torch.backend.init_process_group(), as torch.nn.parallel.DistributedDataParallel.

    torch's own divides the sum of gradients by the size of the world, also when workers have died, so that the steps of
    the others become smaller. This one divides by the workers whose gradients are in the sum; inside of an Elastic by
    their weights: `step.weight = …` stands before backward().
    """

    def __init__(self, module, **options):
        super().__init__(module, **options)
        self.register_comm_hook(None, _mean)
