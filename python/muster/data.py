"""Records of files, or the numbers of a program's own data, in an order that a seed gives; see docs/data.md.

    data = muster.data.tfrecord(["data/train-*.tfrecord"], batch=512, seed=7)
    elastic = muster.Elastic({"weights": weights}, data=data)
    gradient, = elastic.buffers([weights])
    for step in elastic.steps(1000):
        with step:
            records, numbers, epoch = step.share()      # this member's part of the step
            gradient[:] = gradient_of(weights, records)  # the mean over them
            step.average()                              # over the records of all; the position moves by what is in it
            weights -= 0.1 * gradient

Each record is used once in an epoch, whoever dies: what a dead member had not given comes first in the next step.
"""

from muster._muster import Dataset as _Base


class Dataset(_Base):
    """Batches of `batch` records. By itself it is an iterator of (records, numbers, epoch); records are bytes."""

    def __iter__(self):
        return self

    def __next__(self):
        batch = self.next()
        if batch is None:
            raise StopIteration
        return batch

    def shares(self, slots, total):
        """The records of a step's slots, for a step in `total` micro-batches; slots is a range, as MicroBatches.begin
        gives it. A list with (records, numbers, epoch) for each slot; None after the last epoch.

        The records of a slot follow from the position and the slot, whoever has it. `batch` counts those of all slots.
        The position does not move: complete_step, between sum and commit, moves it past the step."""
        return self.next_shares(slots.start, len(slots), total)


def _make(kind, options):
    dataset = Dataset(kind, **options)
    # With the records, these options decide the order in which records come.
    dataset.order = f"batch={options.get('batch', 1)} seed={options.get('seed', 0)} shuffle={'yes' if options['shuffle'] else 'no'}"
    return dataset


def _open(kind, paths, options):
    return _make(kind, {"paths": [paths] if isinstance(paths, str) else [str(each) for each in paths], **options})


def lines(paths, **options):
    """Lines of text, without their ends. Paths may be patterns of the shell; .gz and .zst are decompressed.

    Options, here and below: batch (records of a step of all members, 1), shuffle (True: anew in each epoch, over all
    records), seed, epochs (0: without end), header_lines, prefetch_bytes, threads."""
    return _open("lines", paths, {"shuffle": True, **options})


def csv(paths, **options):
    """Rows of CSV; quoted fields may hold ends of lines."""
    return _open("csv", paths, {"shuffle": True, **options})


def fixed(paths, record_bytes, **options):
    """Records of record_bytes bytes each, after header_bytes and before footer_bytes of each file."""
    return _open("fixed", paths, {"record_bytes": record_bytes, "shuffle": True, **options})


def tfrecord(paths, **options):
    """TFRecords; their CRC is checked."""
    return _open("tfrecord", paths, {"shuffle": True, **options})


def numbers(count, **options):
    """The numbers 0 … count - 1, for data that the program has itself, such as a dataset of PyTorch: records are empty."""
    return _make("numbers", {"count": count, "shuffle": True, **options})
