#!/usr/bin/env python3
"""case_runner answers as an unmodified TensorFlow does: shards, batches, packs and roles of clusters, in cases drawn by a seed.

usage: test_input_tensorflow.py [--seed N] [--count N]

The cases have the format of the recorded ones. Left out is what muster decides otherwise on purpose: fewer files than workers (an
error for all, where TensorFlow fails on some workers and gives the others nothing) and the worker count of an evaluator that the
cluster does not list (1, where TensorFlow raises KeyError).

Needs tensorflow: tests/tools/install-strangers tensorflow, or MUSTER_TENSORFLOW_PYTHON names an interpreter that has it.
"""
import argparse
import importlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import guard

guard.enter()
import needs

STATUS = {"FailedPreconditionError": "FAILED_PRECONDITION", "NotFoundError": "NOT_FOUND"}  # all others: INVALID_ARGUMENT
POLICIES = ("OFF", "AUTO", "FILE", "DATA", "HINT")


# --- Cases ---


def draw_files(draw, lines_min):
    return [[f"{chr(97 + file)}{line}" for line in range(draw.randint(lines_min, 4))] for file in range(draw.randint(1, 6))]


def draw_source(draw):
    kind = draw.choice(("range", "range", "text_files", "tfrecord_files", "interleaved_text_files"))
    if kind == "range":
        return {"kind": kind, "n": draw.randint(0, 16)}
    cycle = {"cycle": draw.randint(1, 4)} if kind == "interleaved_text_files" else {}
    return {"kind": kind, "files": draw_files(draw, 0), **cycle}


def draw_stages(draw, source, count, has_marks=False, has_filters=False):
    stages, depth = [], 0
    for _ in range(draw.randint(0, count)):
        name = draw.choice(("batch", "batch", "prefetch", "repeat", "take", "shard", "map_add", "unbatch", "filter"))
        if name == "batch" and depth < 1 + has_filters:
            stages.append(["batch", draw.randint(1, 5), *draw.choice(([], [], ["drop"]))])
            depth += 1
        elif name == "unbatch" and depth > 0:
            stages.append(["unbatch"])
            depth -= 1
        elif name in ("prefetch", "repeat"):
            stages.append([name, draw.randint(1, 3)])
        elif name == "take":
            stages.append(["take", draw.randint(1, 6)])
        elif name == "shard" and has_marks and ["shard", "hint", "hint"] not in stages:
            stages.append(["shard", "hint", "hint"])
        elif name == "map_add" and source["kind"] == "range":
            stages.append(["map_add", draw.randint(1, 100)])
        elif name == "filter" and has_filters:
            stages.append(["filter"])
    return stages


def draw_auto_shard(draw):
    source, workers = draw_source(draw), draw.randint(1, 5)
    indices = {"indices": [draw.choice((workers, workers + 1))]} if draw.random() < 0.05 else {}
    return {"policy": draw.choice(POLICIES), "num_workers": workers, "source": source, "ops": draw_stages(draw, source, 3, has_marks=True),
            **indices}


def draw_global_batch(draw):
    policy = draw.choice(POLICIES[:4])
    case = {"global_batch": draw.randint(1, 12), "num_workers": draw.randint(1, 4), "replicas_per_worker": draw.randint(1, 3),
            "policy": policy, "drop_remainder": draw.random() < 0.3}
    if policy == "FILE" or draw.random() < 0.2:
        return {**case, "elements": None, "source": {"kind": "text_files", "files": draw_files(draw, 1)}}
    return {**case, "elements": draw.randint(1, 30)}


def draw_rebatch(draw):
    sizes = [draw.randint(0, 4) for _ in range(draw.randint(0, 3))] + [draw.randint(1, 4)]
    return {"elements": draw.randint(0, 20), "batch": draw.randint(1, 8), "sizes": sizes}


def draw_legacy_rebatch(draw):
    batch = ["batch", draw.randint(1, 9), *draw.choice(([], [], ["drop"]))]
    return {"source": {"kind": "range", "n": draw.randint(1, 20)}, "ops": [batch], "num_replicas": draw.randint(1, 4)}


def draw_batch_size_of(draw):
    source = {"kind": "range", "n": 10}
    return {"source": source, "ops": draw_stages(draw, source, 4, has_filters=True)}


def draw_packing(draw):
    types = ("float32", "float32", "float64", "float16", "bfloat16", "int8", "uint8", "bool", "int16", "int32", "int64", "complex64")
    tensors = [{"shape": [draw.choice((0, 1, 2, 3, 5, 10)) for _ in range(draw.randint(0, 3))], "dtype": draw.choice(types)}
               for _ in range(draw.randint(1, 8))]
    if draw.random() < 0.1:
        draw.choice(tensors)["shape"].append(None)
    return {"bytes_per_pack": draw.choice((0, 1, 4, 7, 8, 16, 39, 40, 41, 64, 100, 1000)), "tensors": tensors}


def draw_cluster_rules(draw):
    cluster = {}
    for job in draw.sample(("chief", "worker", "worker", "worker", "ps", "evaluator", "master", "trainer"), draw.randint(0, 4)):
        count = draw.randint(1, 3) if job in ("worker", "ps") or draw.random() < 0.1 else 1
        tasks = [f"{job}{index}:1" for index in range(count)]
        if draw.random() < 0.15:  # with gaps
            tasks = dict(zip(map(str, sorted(draw.sample(range(6), count))), tasks))
        cluster[job] = tasks
    task_type = draw.choice([*cluster, *cluster, "chief", "worker", "ps", "evaluator", "trainer", None, ""])
    return {"cluster": cluster, "task_type": task_type, "task_id": draw.choice((0, 0, 1, 2, 3))}


KINDS = {"auto_shard": draw_auto_shard, "global_batch": draw_global_batch, "rebatch": draw_rebatch, "legacy_rebatch": draw_legacy_rebatch,
         "batch_size_of": draw_batch_size_of, "packing": draw_packing, "cluster_rules": draw_cluster_rules}


def lacks_files(args):
    files = (args.get("source") or {}).get("files")
    return files is not None and args["policy"] in ("AUTO", "FILE", "HINT") and len(files) < args["num_workers"]


def draw_case(draw, name):
    kind = draw.choice(tuple(KINDS))
    args = KINDS[kind](draw)
    while kind in ("auto_shard", "global_batch") and lacks_files(args):
        args = KINDS[kind](draw)
    return {"name": name, "kind": kind, "args": args}


# --- What TensorFlow says ---


class Judge:
    """TensorFlow's answers to the calls of a case."""

    def __init__(self, folder):
        self.folder, self.file_count = pathlib.Path(folder), 0
        self.distribute = importlib.import_module("tensorflow.python.data.experimental.ops.distribute")
        self.input_ops = importlib.import_module("tensorflow.python.distribute.input_ops")
        self.rules = importlib.import_module("tensorflow.python.distribute.multi_worker_util")
        self.utils = importlib.import_module("tensorflow.python.distribute.cross_device_utils")

    def write(self, source):
        paths = []
        for lines in source["files"]:
            paths.append(str(self.folder / f"{self.file_count:06}"))
            self.file_count += 1
            if source["kind"] == "tfrecord_files":
                with tf.io.TFRecordWriter(paths[-1]) as writer:
                    for line in lines:
                        writer.write(line.encode())
            else:
                pathlib.Path(paths[-1]).write_text("".join(line + "\n" for line in lines), encoding="ascii")
        return paths

    def read(self, source):
        if source["kind"] == "range":
            return tf.data.Dataset.range(source["n"])
        paths = self.write(source)
        if source["kind"] == "tfrecord_files":
            return tf.data.TFRecordDataset(paths)
        if source["kind"] == "text_files":
            return tf.data.TextLineDataset(paths)
        return tf.data.Dataset.from_tensor_slices(paths).interleave(tf.data.TextLineDataset, cycle_length=source["cycle"], block_length=1)

    def apply(self, dataset, stages):
        hint = self.distribute.SHARD_HINT
        makers = {"batch": lambda size, *drop: dataset.batch(size, drop_remainder=bool(drop)), "unbatch": lambda: dataset.unbatch(),
                  "repeat": lambda count: dataset.repeat(count), "take": lambda count: dataset.take(count),
                  "prefetch": lambda count: dataset.prefetch(count), "map_add": lambda addend: dataset.map(lambda value: value + addend),
                  "filter": lambda: dataset.filter(lambda value: True), "shard": lambda *hints: dataset.shard(hint, hint)}
        for name, *words in stages:
            dataset = makers[name](*words)
        return dataset

    def under(self, policy, dataset):
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = getattr(tf.data.experimental.AutoShardPolicy, policy)
        return dataset.with_options(options)

    def auto_shard(self, args):
        for worker in args.get("indices", range(args["num_workers"])):
            yield "worker_elements", {"worker": worker}, lambda worker=worker: listed(self.distribute._AutoShardDataset(
                self.under(args["policy"], self.apply(self.read(args["source"]), args["ops"])), args["num_workers"], worker))

    def batches(self, args):
        elements = tf.data.Dataset.range(args["elements"]) if args["elements"] is not None else self.read(args["source"])
        return self.under(args["policy"], elements.batch(args["global_batch"], drop_remainder=args["drop_remainder"]))

    def sizes(self, args, worker):
        return self.distribute.batch_sizes_for_worker(args["global_batch"], args["num_workers"], args["replicas_per_worker"], worker)

    def divide(self, args, worker):
        """As input_lib.DistributedDataset does it."""
        workers, replicas = args["num_workers"], args["replicas_per_worker"]
        cut = self.batches(args).rebatch(self.sizes(args, worker)).prefetch(replicas)
        return listed(self.input_ops.auto_shard_dataset(cut, workers, worker, workers * replicas))

    def global_batch(self, args):
        for worker in range(args["num_workers"]):
            yield "batch_sizes", {"worker": worker}, lambda worker=worker: self.sizes(args, worker).numpy().tolist()
            yield "worker_batches", {"worker": worker}, lambda worker=worker: self.divide(args, worker)

    def rebatch(self, args):
        yield "batches", {}, lambda: listed(tf.data.Dataset.range(args["elements"]).batch(args["batch"]).rebatch(args["sizes"]))

    def legacy_rebatch(self, args):
        yield "batches", {}, lambda: listed(self.distribute._LegacyRebatchDataset(self.apply(self.read(args["source"]), args["ops"]),
                                                                                  args["num_replicas"]))

    def batch_size_of(self, args):
        yield "batch_size", {}, lambda: int(self.distribute.compute_batch_size(self.apply(self.read(args["source"]), args["ops"])))

    def packing(self, args):
        class Tensor:
            def __init__(self, index, of):
                self.index, self.shape, self.dtype = index, tf.TensorShape(of["shape"]), tf.as_dtype(of["dtype"])

        tensors = [Tensor(index, of) for index, of in enumerate(args["tensors"])]
        yield "packs", {}, lambda: [[tensor.index for tensor in pack]
                                    for pack in self.utils.group_by_size(tensors[::-1], args["bytes_per_pack"])]

    def cluster_rules(self, args):
        kind, number = args["task_type"], args["task_id"]
        cluster = {job: {int(index): address for index, address in tasks.items()} if isinstance(tasks, dict) else tasks
                   for job, tasks in args["cluster"].items()}
        yield "is_chief", {}, lambda: self.rules.is_chief(cluster, kind, number)
        if kind != "evaluator" or kind in cluster:
            yield "worker_count", {}, lambda: self.rules.worker_count(cluster, kind)
        yield "id_in_cluster", {}, lambda: self.rules.id_in_cluster(cluster, kind, number)
        yield "collective_leader", {}, lambda: self.rules.collective_leader(cluster, kind, number)
        yield "coordination_leader", {}, lambda: self.rules.coordination_leader(cluster)

    def complete(self, case):
        """The case, with the calls and what TensorFlow answers."""
        calls = getattr(self, case["kind"])(case["args"])
        return {**case, "calls": [{"call": name, "args": args, **answer(call)} for name, args, call in calls]}


def plain(value):
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


def listed(dataset):
    return [plain(element.numpy()) for element in dataset]


def answer(call):
    try:
        return {"expect": {"value": call()}}
    except Exception as error:  # of TensorFlow and of its Python, which both refuse
        return {"error": {"status": STATUS.get(type(error).__name__, "INVALID_ARGUMENT"), "what": str(error)[:200]}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=150)
    options = parser.parse_args(sys.argv[2:])
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(folder)
        cases = [judge.complete(draw_case(draw, f"{options.seed}-{index}")) for index in range(options.count)]
        path = pathlib.Path(folder) / "cases.json"
        path.write_text(json.dumps({"area": "tensorflow", "cases": cases}), encoding="utf-8")
        seen = subprocess.run([needs.program("case_runner"), path], stdout=subprocess.PIPE, text=True, check=False)
    print(seen.stdout, end="")
    for case in cases:
        if f"/{case['name']}: FAILED" in seen.stdout:
            print(json.dumps(case))
    assert seen.returncode == 0 and f"{options.count} passed, 0 failed" in seen.stdout, "case_runner and TensorFlow differ"


if sys.argv[1:2] != ["judge"]:
    needs.program("case_runner")
    python = needs.stranger_python("tensorflow")
    os.execve(python, [python, __file__, "judge", *sys.argv[1:]], dict(os.environ, CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3"))
tf = importlib.import_module("tensorflow")
main()
