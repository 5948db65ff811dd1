"""Parts of a slot of muster.torch.Elastic: its gradients and statistics, which of them there are, and other buffers."""

import numpy
import torch

_MEANS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def bytes_of(tensor):
    """The memory of a tensor as an array of bytes: NumPy lacks bf16."""
    return tensor.detach().view(-1).view(torch.uint8).numpy()


class Parts:
    """Means over the slots: gradients, buffers of floats. Sums: which gradients there are, and which buffers have changed;
    the values of other buffers, in pieces of 16 bits, which slot 0 alone gives. Buffers that no slot has changed keep what
    the program makes of them behind the loop."""

    def __init__(self, parameters, buffers):
        self._parameters = parameters
        self._buffers = sorted(buffers, key=lambda each: each.dtype not in _MEANS)
        self._floats = [each for each in self._buffers if each.dtype in _MEANS]
        self._others = self._buffers[len(self._floats):]
        self._kept = [each.detach().clone() for each in self._buffers]
        self.means = sum(each.numel() for each in [*parameters, *self._floats])
        self.sums = len(parameters) + len(buffers) + sum(_words_of(each).size for each in self._others)
        self.is_wide = any(each.dtype == torch.float64 for each in [*parameters, *self._floats])

    def begin(self):
        """Each slot begins with the buffers as they are now."""
        with torch.no_grad():
            for each, kept in zip(self._buffers, self._kept):
                kept.copy_(each)
        self.drop_gradients()

    def restore(self):
        with torch.no_grad():
            for each, kept in zip(self._buffers, self._kept):
                each.copy_(kept)

    def drop_gradients(self):
        for each in self._parameters:
            each.grad = None

    def has_gradients(self):
        return any(each.grad is not None for each in self._parameters)

    def fill(self, means, sums, is_first, weight):
        """The parts of the slot. One without examples has none."""
        flat, at = torch.from_numpy(means), 0
        for each in [*(each.grad if each.grad is not None else torch.zeros(()).expand(each.shape) for each in self._parameters), *self._floats]:
            flat[at:at + each.numel()].view(each.shape).copy_(each)
            at += each.numel()
        given = [each.grad is not None for each in self._parameters]
        given += [not numpy.array_equal(bytes_of(each), bytes_of(kept)) for each, kept in zip(self._floats, self._kept)]
        sums[:] = 0
        sums[:len(given)] = numpy.array(given) * (weight > 0)
        if is_first and weight > 0:
            self._fill_others(sums[len(given):])

    def _fill_others(self, sums):
        kept = self._kept[len(self._floats):]
        sums[:len(self._others)] = [not numpy.array_equal(bytes_of(each), bytes_of(old)) for each, old in zip(self._others, kept)]
        at = len(self._others)
        for each in self._others:
            words = _words_of(each)
            sums[at:at + words.size] = words
            at += words.size

    def take(self, means, sums):
        """The parts of all slots together. Gradients that no slot has stay None, and buffers that none has changed are left alone."""
        flat, at = torch.from_numpy(means), 0
        given, changed, others = numpy.split(sums, [len(self._parameters), len(self._parameters) + len(self._floats)])
        for each, is_given in zip(self._parameters, given):
            each.grad = flat[at:at + each.numel()].view(each.shape).to(each.dtype) if is_given else None
            at += each.numel()
        with torch.no_grad():
            for each, is_changed in zip(self._floats, changed):
                if is_changed:
                    each.copy_(flat[at:at + each.numel()].view(each.shape))
                at += each.numel()
        self._take_others(others)

    def _take_others(self, sums):
        at = len(self._others)
        for each, is_given in zip(self._others, sums):
            count = _words_of(each).size
            if is_given:
                memory = bytes_of(each)
                memory[:] = sums[at:at + count].astype("<u2").view(numpy.uint8)[:memory.size]
            at += count


def _words_of(tensor):
    """Its bytes as numbers that float32 holds."""
    memory = bytes_of(tensor)
    return numpy.pad(memory, (0, memory.size % 2)).view("<u2")
