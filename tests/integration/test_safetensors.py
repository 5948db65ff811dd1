#!/usr/bin/env python3
"""The `safetensors` package of Hugging Face reads what `muster checkpoint export` writes, and a job begins with what it writes.

Needs safetensors and numpy: tests/tools/install-strangers safetensors, or MUSTER_SAFETENSORS_PYTHON names an interpreter that has them.
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
import needs
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS

PYTHON = needs.stranger_python("safetensors")
STEPPER = os.path.join(PROGRAMS, "stepper")

# The types that numpy and muster have; BF16 numpy lacks.
TYPES = ("float64", "float32", "float16", "int64", "int32", "int8", "uint64", "uint32", "uint8", "bool", "int16",
         "uint16")

# The stranger's part: what it is told to write, and what it reads.
STRANGER = """
import json, sys
import numpy
import safetensors, safetensors.numpy
verb, path = sys.argv[1:3]
TYPES = %r
def made():
    tensors = {each: (numpy.arange(24) %% (2 if each == "bool" else 100)).astype(each).reshape(2, 3, 4) for each in TYPES}
    tensors.update(scalar=numpy.array(7.5), none=numpy.zeros((0, 3), "float32"))
    return tensors
if verb == "total":
    safetensors.numpy.save_file({"total": numpy.full((600, 500), 7.0)}, path, metadata={"format": "pt"})
elif verb == "types":
    safetensors.numpy.save_file(made(), path, metadata={"step": "41"})
elif verb == "compare":
    found, expected = safetensors.numpy.load_file(path), made()
    assert found.keys() == expected.keys(), found.keys()
    for name, values in expected.items():
        assert found[name].dtype == values.dtype, name
        assert (found[name] == values.flatten()).all(), name
elif verb == "read":
    with safetensors.safe_open(path, framework="np") as file:
        print(json.dumps({"metadata": file.metadata(), "tensors": {name: [str(file.get_tensor(name).dtype), list(file.get_tensor(name).shape),
              float(file.get_tensor(name).min()), float(file.get_tensor(name).max())] for name in file.keys()}}))
elif verb == "judge":
    try:
        safetensors.deserialize(open(path, "rb").read())
    except safetensors.SafetensorError as error:
        sys.exit(str(error))
""" % (TYPES,)


def entry(dtype, shape, *offsets):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


# Files of both kinds: what both judge alike.
JUDGED = {
    "right": ({"a": entry("F32", [2], 0, 8), "b": entry("U8", [3], 8, 11)}, 11),
    "a scalar": ({"a": entry("F32", [], 0, 4)}, 4),
    "no tensors": ({}, 0),
    "cut short": ({"a": entry("F32", [2], 0, 8)}, 7),
    "bytes behind": ({"a": entry("F32", [2], 0, 8)}, 9),
    "overlap": ({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, 6),
    "gap": ({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 5, 9)}, 9),
    "too few bytes for the shape": ({"a": entry("F32", [3], 0, 8)}, 8),
    "an unknown type": ({"a": entry("F33", [2], 0, 8)}, 8),
    "a negative size": ({"a": entry("U8", [-1], 0, 1)}, 1),
    "metadata of a number": ({"__metadata__": {"a": 1}}, 0),
    "far outside": ({"a": entry("U8", [4], 1 << 62, (1 << 62) + 4)}, 4),
    "a product that overflows": ({"a": entry("U8", [1 << 32, 1 << 32], 0, 0)}, 0),
}


class Safetensors(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.checkpoints = os.path.join(self.folder.name, "checkpoints")
        self.path = os.path.join(self.folder.name, "state.safetensors")

    def stranger(self, verb):
        return subprocess.run([PYTHON, "-c", STRANGER, verb, self.path], text=True, capture_output=True, timeout=PATIENCE_S)

    def stranger_does(self, verb):
        done = self.stranger(verb)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def command(self, *words):
        return subprocess.run([MUSTER, "checkpoint", *words], env=CLEAN, text=True, capture_output=True, timeout=PATIENCE_S)

    def command_does(self, *words):
        done = self.command(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def train(self, steps, *options):
        done = subprocess.run([MUSTER, "run", "-n", "2", "--checkpoint-dir", self.checkpoints, *options, "--", STEPPER, str(steps), "300000"],
                              env=CLEAN, text=True, capture_output=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_the_stranger_reads_what_a_job_has_saved(self):
        self.train(21, "--checkpoint-every", "20")
        self.command_does("export", self.checkpoints, self.path, "--step", "20")

        found = json.loads(self.stranger_does("read"))

        self.assertEqual(found, {"metadata": {"step": "20"}, "tensors": {"total": ["float64", [300000], 20, 20]}})

    def test_a_job_begins_with_what_the_stranger_has_written(self):
        self.stranger_does("total")
        refused = self.command("import", self.path, self.checkpoints)
        self.assertEqual(refused.returncode, 3)
        self.assertIn("its metadata have no step", refused.stderr)

        name = self.command_does("import", self.path, self.checkpoints, "--step", "41").strip()

        self.assertRegex(name, r"^checkpoint-000000000041-[0-9a-f]{16}$")
        done = self.train(50)
        self.assertIn("the job begins with the checkpoint of step 41", done.stderr)
        self.assertIn("total 16", done.stdout)  # a step adds 1

    def test_all_types_go_there_and_back(self):
        self.stranger_does("types")
        self.command_does("import", self.path, self.checkpoints)
        self.command_does("verify", self.checkpoints)
        shown = json.loads(self.command_does("show", self.checkpoints, "--json"))
        self.assertEqual(shown["step"], 41)
        self.assertEqual(len(shown["tensors"]), len(TYPES) + 2)
        os.remove(self.path)

        self.command_does("export", self.checkpoints, self.path)

        self.stranger_does("compare")
        again = self.command("import", self.path, self.checkpoints)
        self.assertEqual(again.returncode, 4)
        self.assertIn("has a checkpoint of step 41", again.stderr)

    def test_a_type_that_muster_lacks_is_named(self):
        text = json.dumps({"weights": entry("C64", [2], 0, 16)}).encode()
        pathlib.Path(self.path).write_bytes(struct.pack("<Q", len(text)) + text + bytes(16))
        done = self.command("import", self.path, self.checkpoints, "--step", "1")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("tensor weights has type C64; the types that can be imported are", done.stderr)
        self.assertFalse(os.path.exists(self.checkpoints))

    def test_both_judge_files_alike(self):
        for number, (what, (header, data_bytes)) in enumerate(JUDGED.items(), 1):
            with self.subTest(what):
                text = json.dumps(header).encode()
                pathlib.Path(self.path).write_bytes(struct.pack("<Q", len(text)) + text + bytes(data_bytes))
                theirs, ours = self.stranger("judge"), self.command("import", self.path, self.checkpoints, "--step", str(number))
                self.assertEqual(ours.returncode == 0, theirs.returncode == 0, (ours.stderr, theirs.stderr))


if __name__ == "__main__":
    unittest.main()
