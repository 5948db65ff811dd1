#!/usr/bin/env python3
"""Each record of a pass over the data is used once, counted in the sums, while workers are killed, come back, and all begin anew."""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS

LEDGER = os.path.join(PROGRAMS, "data_ledger")
RECORDS, PASSES, BATCH, FILES = 1000, 3, 24, 7


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff)


def tfrecord(payload):
    length = struct.pack("<Q", len(payload))
    return length + masked(length) + payload + masked(payload)


class Dataset(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        for part in range(FILES):
            with open(os.path.join(self.folder.name, f"part-{part}.tfrecord"), "wb") as file:
                for number in range(part * RECORDS // FILES, (part + 1) * RECORDS // FILES):
                    file.write(tfrecord(str(number).encode()))

    def run_job(self, *options, passes=PASSES, **variables):
        command = [MUSTER, "run", "-n", "4", "--json", "-", *options, "--", LEDGER, str(RECORDS), str(passes), str(BATCH),
                   os.path.join(self.folder.name, "part-*.tfrecord")]
        done = subprocess.run(command, env=dict(CLEAN, **variables), text=True, capture_output=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1]), done.stdout + done.stderr

    def assert_each_once(self, summary, text, passes=PASSES):
        self.assertEqual((summary["values"]["uses_min"], summary["values"]["uses_max"]), (passes, passes), text)
        self.assertTrue(summary["identical"], text)

    def test_without_a_death(self):
        summary, text = self.run_job()
        self.assert_each_once(summary, text)
        self.assertEqual((summary["values"]["skipped"], summary["values"]["partial"]), (0, PASSES))
        self.assertEqual(summary["steps"], PASSES * -(-RECORDS // BATCH), "steps are full but for the last of a pass")

    def test_killed_within_sums(self):
        """Before anybody has the sum (RETRY), and when some have (ADOPT); a worker, rank 0, two at once, in the last step of a pass."""
        last = 2 * -(-RECORDS // BATCH)
        kills = ("worker:2@step=10", "worker:0@step=25,chunk=0", f"worker:1@step={last}", f"worker:3@step={last}")
        summary, text = self.run_job(*(word for kill in kills for word in ("--kill", kill)), DATA_LEDGER_LINGER_MS="15")
        self.assertEqual(summary["kills"], len(kills), text)
        self.assertGreaterEqual(summary["rejoins"], 1, text)
        self.assertGreater(summary["values"]["partial"], PASSES, "some step had less than its batch: " + text)
        self.assert_each_once(summary, text)

    def test_all_are_killed_and_restored(self):
        """The position is in the checkpoint, so that all go on behind it."""
        kills = [word for worker in range(4) for word in ("--kill", f"worker:{worker}@step=60")]
        for attempt in range(8):  # one that comes to the step when the others are dead has no wire to die in
            summary, text = self.run_job("--checkpoint-dir", os.path.join(self.folder.name, f"checkpoints{attempt}"), "--checkpoint-every", "7",
                                         *kills, DATA_LEDGER_LINGER_MS="5")
            if summary["kills"] == 4:
                break
        self.assertEqual(summary["kills"], 4, text)
        self.assert_each_once(summary, text)


if __name__ == "__main__":
    unittest.main()
