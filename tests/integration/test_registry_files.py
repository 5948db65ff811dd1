#!/usr/bin/env python3
"""Data files of registries: backups of dead and living ones, what is made of them, what is refused, and who has a file open."""
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from etcd_cluster import ETCD, ETCDCTL, Embedded, EtcdCluster, etcdctl
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS


def muster(*words):
    return subprocess.run([MUSTER, *words], env=CLEAN, text=True, capture_output=True, timeout=PATIENCE_S)


class Case(unittest.TestCase):
    def setUp(self):
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        self.where = where.name
        self.data, self.backup, self.copy = (os.path.join(self.where, name) for name in ("registry.db", "backup", "copy.db"))

    def serve(self, data):
        return Embedded(self.addCleanup, "--data", data)

    def ok(self, *words):
        done = muster(*words)
        self.assertEqual(done.returncode, 0, (words, done.stderr))
        return done.stderr

    def refused(self, code, *words):
        done = muster(*words)
        self.assertEqual(done.returncode, code, (words, done.stderr))
        self.assertEqual([name for name in os.listdir(self.where) if "-XXXXXX" in name or ".copy-" in name or ".part-" in name], [])
        return done.stderr

    def ctl(self, registry, *words):
        done = etcdctl(registry.endpoints, *words)
        self.assertEqual(done.returncode, 0, (words, done.stderr))
        return done.stdout


@unittest.skipUnless(ETCDCTL, "etcdctl is not installed (Debian: etcd-client)")
class Restored(Case):
    def fill(self, registry):
        lease = self.ctl(registry, "lease", "grant", "600").split()[1]
        for i in range(50):
            self.ctl(registry, "put", f"/k/{i:02}", f"value {i}") if i % 10 == 0 else None
        self.ctl(registry, "put", "/k/00", "newer")
        self.ctl(registry, "put", "--lease", lease, "/leased", "1")
        return lease

    def check(self, data, lease):
        registry = self.serve(data)
        self.assertEqual(self.ctl(registry, "get", "--prefix", "/k/").split("\n")[:4], ["/k/00", "newer", "/k/10", "value 10"])
        self.assertIn("remaining(5", self.ctl(registry, "lease", "timetolive", lease))
        self.ctl(registry, "lease", "revoke", lease)
        self.assertEqual(self.ctl(registry, "get", "/leased"), "")
        registry.stop()

    def test_a_file_that_nobody_serves(self):
        registry = self.serve(self.data)
        lease = self.fill(registry)
        registry.kill()
        self.ok("registry", "backup", "--data", self.data, "--output", self.backup)
        self.assertIn("6 keys, 1 leases", self.ok("registry", "restore", "--from", self.backup, "--data", self.copy))
        self.check(self.copy, lease)
        self.check(self.data, lease)  # the original is as it was

    def test_a_registry_that_lives_and_etcdctl_takes_the_snapshot_too(self):
        registry = self.serve(self.data)
        lease = self.fill(registry)
        self.ok("registry", "backup", "--registry", registry.endpoints, "--output", self.backup)
        saved = os.path.join(self.where, "saved")
        self.ctl(registry, "snapshot", "save", saved)
        for i, backup in enumerate((self.backup, saved)):
            self.ok("registry", "restore", "--from", backup, "--data", self.copy + str(i))
            self.check(self.copy + str(i), lease)

    def test_one_in_memory(self):
        registry = Embedded(self.addCleanup)
        lease = self.fill(registry)
        self.ok("registry", "backup", "--registry", registry.endpoints, "--output", self.backup)
        self.ok("registry", "restore", "--from", self.backup, "--data", self.copy)
        self.check(self.copy, lease)

    def test_while_others_write_it_is_of_one_moment(self):
        registry = self.serve(self.data)
        load = subprocess.Popen([os.path.join(PROGRAMS, "registry_load"), "/load/"], env=dict(CLEAN, MUSTER_REGISTRY=registry.endpoints),
                                text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(load.communicate)
        self.addCleanup(load.kill)
        for i in range(20):
            self.ctl(registry, "put", f"/large/{i}", "x" * 100_000)
        for i in range(5):
            load.stdout.readline()
            self.ok("registry", "backup", "--registry", registry.endpoints, "--output", self.backup + str(i))
        load.communicate(timeout=PATIENCE_S)
        self.assertEqual(load.returncode, 0)
        before = -1
        for i in range(5):
            self.ok("registry", "restore", "--from", self.backup + str(i), "--data", self.copy + str(i))
            copy = self.serve(self.copy + str(i))
            _, first, _, second = self.ctl(copy, "get", "--prefix", "/load/n/").split()
            self.assertEqual(first, second)  # they are written together
            self.assertGreaterEqual(int(first), max(before, i * 100))
            before = int(first)
            copy.stop()

    def test_an_old_watch_is_told_instead_of_waiting_for_what_never_comes(self):
        registry = self.serve(self.data)
        self.fill(registry)
        registry.stop()
        self.ok("registry", "backup", "--data", self.data, "--output", self.backup)
        self.ok("registry", "restore", "--from", self.backup, "--data", self.copy)
        copy = self.serve(self.copy)
        watch = etcdctl(copy.endpoints, "watch", "--rev", "5", "/k/00")
        self.assertIn("compacted", watch.stderr + watch.stdout)
        fields = self.ctl(copy, "get", "/k/00", "-w", "fields")
        self.assertIn('"Revision" : 10000000', fields)
        old = self.serve(self.data)
        self.assertNotEqual(fields.split('"ClusterID" : ')[1].split()[0],
                            self.ctl(old, "get", "/k/00", "-w", "fields").split('"ClusterID" : ')[1].split()[0])

    @unittest.skipUnless(ETCD, "etcd is not installed (Debian: etcd-server)")
    def test_a_snapshot_of_etcd_is_fetched_and_named_as_what_it_is(self):
        etcd = EtcdCluster(self.addCleanup, size=1)
        self.ok("registry", "backup", "--registry", etcd.endpoints, "--output", self.backup)
        status = subprocess.run([ETCDCTL, "snapshot", "status", self.backup], env=dict(os.environ, ETCDCTL_API="3"), capture_output=True)
        self.assertEqual(status.returncode, 0, status.stderr)
        self.assertIn("etcdctl snapshot restore", self.refused(3, "registry", "restore", "--from", self.backup, "--data", self.copy))


class Refused(Case):
    def setUp(self):
        super().setUp()
        self.serve(self.data).stop()
        self.ok("registry", "backup", "--data", self.data, "--output", self.backup)

    def restore(self, *, code=3):
        err = self.refused(code, "registry", "restore", "--from", self.backup, "--data", self.copy)
        self.assertFalse(os.path.exists(self.copy))
        return err

    def rewrite(self, change):
        with open(self.backup, "rb") as file:
            content = bytearray(file.read())
        content = change(content) or content
        with open(self.backup, "wb") as file:
            file.write(content)

    def test_what_is_there_is_not_overwritten(self):
        self.ok("registry", "restore", "--from", self.backup, "--data", self.copy)
        for words in (("restore", "--from", self.backup, "--data", self.copy), ("backup", "--data", self.data, "--output", self.backup),
                      ("backup", "--registry", "127.0.0.1:1", "--output", self.backup)):
            self.assertIn("there already", self.refused(4, "registry", *words))

    def test_a_torn_backup(self):
        self.rewrite(lambda content: content[:len(content) // 2])
        self.assertIn("torn", self.restore())
        self.rewrite(lambda content: content[:20])
        self.assertIn("too short", self.restore())

    def test_a_damaged_backup(self):
        def flip(content):
            content[len(content) // 2] ^= 1
        self.rewrite(flip)
        self.assertIn("checksum differs", self.restore())

    def test_a_file_of_something_else(self):
        self.rewrite(lambda content: b"This is not a registry, but a letter to a friend.\n" * 100)
        self.assertIn("is not a backup of a registry", self.restore())

    def test_a_data_file_is_not_a_backup(self):
        shutil.copy(self.data, self.backup)
        self.assertIn("muster registry backup", self.restore())

    def test_a_database_of_something_else(self):
        import hashlib
        os.unlink(self.backup)
        other = sqlite3.connect(self.backup)
        other.execute("CREATE TABLE friends(name)")
        other.commit()
        other.close()
        self.rewrite(lambda content: content + hashlib.sha256(content).digest())
        self.assertIn("holds no registry", self.restore())

    def test_a_data_file_that_is_something_else(self):
        with open(self.copy, "w", encoding="utf-8") as file:
            file.write("This is a letter to a friend.\n" * 100)
        said = self.refused(3, "registry", "--listen", "127.0.0.1:0", "--data", self.copy)
        for words in (self.copy, "is not a data file of 'muster registry' (SQLite), or is damaged", "name another file, or restore a backup"):
            self.assertIn(words, said)

    def test_what_is_not_there(self):
        self.assertIn("No such file", self.refused(3, "registry", "restore", "--from", self.backup, "--data", "/nowhere/copy.db"))
        os.unlink(self.backup)
        self.assertIn("No such file", self.restore())
        self.assertIn("No such file", self.refused(3, "registry", "backup", "--data", self.copy, "--output", self.backup))
        self.assertFalse(os.path.exists(self.copy))

    def test_nobody_answers(self):
        os.unlink(self.backup)
        self.assertIn("127.0.0.1:1", self.refused(4, "registry", "backup", "--registry", "127.0.0.1:1", "--output", self.backup, "--timeout", "1"))
        self.assertFalse(os.path.exists(self.backup))

    def test_wrong_words(self):
        for words in (("backup",), ("restore",), ("backup", "--output", "x"), ("backup", "--output", "x", "--data", "y", "--registry", "z"),
                      ("restore", "--from", "x")):
            self.assertIn("--help", self.refused(2, "registry", *words))


class Owned(Case):
    def test_who_has_the_file_is_said_at_once(self):
        registry = self.serve(self.data)
        for words in (("--listen", "127.0.0.1:0", "--data", self.data), ("backup", "--data", self.data, "--output", self.backup)):
            err = self.refused(4, "registry", *words)
            self.assertIn(f"process {registry.process.pid}", err)
            self.assertIn("muster registry", err)
        self.assertIn("--registry HOST:PORT", err)

    def test_a_second_coordinator_says_so_too(self):
        first = subprocess.Popen([MUSTER, "coordinator", "--listen", "127.0.0.1:0", "--tasks", "1", "--data", self.data], env=CLEAN,
                                 text=True, stdout=subprocess.PIPE)
        self.addCleanup(first.stdout.close)
        self.addCleanup(first.wait)
        self.addCleanup(first.terminate)
        first.stdout.readline()
        err = self.refused(4, "coordinator", "--listen", "127.0.0.1:0", "--tasks", "1", "--data", self.data)
        self.assertIn(f"process {first.pid}", err)

    def test_one_that_was_just_killed_is_no_owner(self):
        registry = self.serve(self.data)
        for _ in range(5):
            registry.process.kill()  # and not waited for
            second = self.serve(self.data)
            self.assertIsNone(second.process.poll())
            registry.stop()
            registry = second


if __name__ == "__main__":
    unittest.main()
