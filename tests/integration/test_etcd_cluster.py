#!/usr/bin/env python3
"""Three members of etcd, killed one by one and brought back, under writers and watchers and under a training job; users and passwords."""
# Entries of ctest: MembersDie JobTrains Users UsersUnderTls OnEmbedded
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
from etcd_cluster import ETCD, ETCDCTL, Embedded, EtcdCluster
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS
from tls_files import OPENSSL, TlsFiles

PASSWORD = "s3cret-of-the-test"


class Load:
    """tests/programs/registry_load.c: it judges by itself what it writes and sees."""

    def __init__(self, case, registry, **env):
        self.case = case
        self.process = subprocess.Popen([os.path.join(PROGRAMS, "registry_load"), "/load/"], text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=dict(CLEAN, MUSTER_REGISTRY=registry.endpoints, **env))
        case.addCleanup(self.process.communicate)
        case.addCleanup(self.process.kill)

    def wait_for_writes(self, count=300):
        for _ in range(count // 100):
            line = self.process.stdout.readline()
            if not line.startswith("acked"):
                self.case.fail(f"{line!r} {self.process.stderr.read()}")

    def end(self):
        out, err = self.process.communicate(timeout=PATIENCE_S)
        self.case.assertEqual(self.process.returncode, 0, err)
        result = json.loads(out.splitlines()[-1])
        self.case.assertEqual(result["seen"], result["acked"])
        self.case.assertGreater(result["relists"], 0)
        return result, err


@unittest.skipUnless(ETCD and ETCDCTL, "etcd is not installed (Debian: etcd-server, etcd-client)")
class MembersDie(unittest.TestCase):
    def test_nothing_is_lost_when_each_is_killed_and_comes_back(self):
        cluster = EtcdCluster(self.addCleanup)
        load = Load(self, cluster)
        load.wait_for_writes()
        for i in (0, 1, 2, 0):
            cluster.kill(i)
            load.wait_for_writes()
            cluster.start(i)
            self.assertTrue(cluster.wait_until_healthy(), cluster.log(i)[-2000:])
            load.wait_for_writes()
        print(load.end()[0])

    def test_nothing_is_lost_when_the_majority_is_away_for_a_while(self):
        cluster = EtcdCluster(self.addCleanup)
        load = Load(self, cluster)
        load.wait_for_writes()
        cluster.kill(0)
        cluster.kill(1)
        while cluster.is_healthy(2):  # until it has noticed
            pass
        for i in (0, 1):
            cluster.start(i)
        self.assertTrue(cluster.wait_until_healthy())
        load.wait_for_writes()
        print(load.end()[0])

    def test_a_member_that_stands_still_is_left(self):
        cluster = EtcdCluster(self.addCleanup)
        load = Load(self, cluster)
        load.wait_for_writes()
        for member in cluster.members:
            member.send_signal(signal.SIGSTOP)
            load.wait_for_writes()
            member.send_signal(signal.SIGCONT)
            self.assertTrue(cluster.wait_until_healthy())
        print(load.end()[0])


@unittest.skipUnless(ETCD and ETCDCTL, "etcd is not installed (Debian: etcd-server, etcd-client)")
class JobTrains(unittest.TestCase):
    STEPS = 4000  # of 25 ms each, until the workers are let hurry

    def kill_worker(self, job, rank):
        with open(f"/proc/{job.pid}/task/{job.pid}/children", encoding="utf-8") as file:
            pids = file.read().split()
        for pid in pids:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"RANK={rank}".encode() in file.read().split(b"\0"):
                    os.kill(int(pid), signal.SIGKILL)
                    return
        self.fail(f"no worker of rank {rank}")

    def test_a_training_job_goes_on(self):
        cluster = EtcdCluster(self.addCleanup)
        with tempfile.TemporaryDirectory() as folder:
            summary, hurry = os.path.join(folder, "summary.json"), os.path.join(folder, "hurry")
            job = subprocess.Popen([MUSTER, "run", "-n", "3", "--registry", cluster.endpoints, "--json", summary, "--",
                                    os.path.join(PROGRAMS, "stepper"), str(self.STEPS), "1000"],
                                   text=True, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                   env=dict(CLEAN, STEPPER_HURRY=hurry, STEPPER_LINGER_MS="25"))
            self.addCleanup(job.communicate)
            self.addCleanup(job.kill)
            said = [job.stderr.readline()]

            def wait_to_read(words):
                while words not in said[-1]:
                    said.append(job.stderr.readline())
                    self.assertTrue(said[-1], said)
                said.append("")

            wait_to_read("view 1 with")
            for i, rank in enumerate((1, 0, 2)):  # each death falls into the absence of a member
                cluster.kill(i)
                self.kill_worker(job, rank)
                wait_to_read("rejoined")
                cluster.start(i)
                self.assertTrue(cluster.wait_until_healthy())
            with open(hurry, "w", encoding="utf-8"):
                pass
            _, rest = job.communicate(timeout=PATIENCE_S)
            self.assertEqual(job.returncode, 0, "".join(said) + rest)
            with open(summary, encoding="utf-8") as file:
                result = json.load(file)
        self.assertEqual((result["steps"], result["kills"], result["rejoins"], result["identical"], result["survivors_restarted"]),
                         (self.STEPS, 3, 3, True, 0), rest)


@unittest.skipUnless(ETCD and ETCDCTL, "etcd is not installed (Debian: etcd-server, etcd-client)")
class Users(unittest.TestCase):
    nobody = "user name is empty"

    def open_cluster(self):
        return EtcdCluster(self.addCleanup)

    def setUp(self):
        self.cluster = self.open_cluster()
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        self.password_file = os.path.join(where.name, "password")
        self.write_password(PASSWORD)
        self.env = {"MUSTER_REGISTRY_USER": "worker", "MUSTER_REGISTRY_PASSWORD_FILE": self.password_file}
        for words in (("user", "add", f"root:{PASSWORD}"), ("user", "grant-role", "root", "root"), ("user", "add", f"worker:{PASSWORD}"),
                      ("role", "add", "jobs"), ("role", "grant-permission", "jobs", "readwrite", "/", "0"),
                      ("user", "grant-role", "worker", "jobs"), ("auth", "enable")):
            done = self.cluster.ctl(*words)
            self.assertEqual(done.returncode, 0, (words, done.stderr))
        self.cluster.user = ("--user", f"root:{PASSWORD}")

    def write_password(self, text):
        with open(self.password_file, "w", encoding="utf-8") as file:
            file.write(text + "\n")

    def load_fails(self, **env):
        load = Load(self, self.cluster, **env)
        _, err = load.process.communicate(timeout=PATIENCE_S)
        self.assertEqual(load.process.returncode, 1)
        self.assertNotIn(PASSWORD, err)
        return err

    def test_a_token_is_asked_for_again_when_members_have_forgotten_it(self):
        load = Load(self, self.cluster, **self.env)
        load.wait_for_writes()
        for i in range(3):
            self.cluster.kill(i)
            self.cluster.start(i)
            self.assertTrue(self.cluster.wait_until_healthy(), self.cluster.log(i)[-2000:])
            load.wait_for_writes()
        done = self.cluster.ctl("user", "add", "other:x")  # a new revision of the users
        self.assertEqual(done.returncode, 0, done.stderr)
        load.wait_for_writes()
        result, err = load.end()
        self.assertNotIn(PASSWORD, err)
        print(result)

    def test_who_is_nobody_or_has_a_wrong_password_or_no_permission_is_told(self):
        self.assertIn(self.nobody, self.load_fails())
        self.assertIn("MUSTER_REGISTRY_PASSWORD_FILE", self.load_fails(MUSTER_REGISTRY_USER="worker"))
        self.assertIn("authentication failed", self.load_fails(**dict(self.env, MUSTER_REGISTRY_USER="stranger")))
        self.assertIn("cannot be read", self.load_fails(**dict(self.env, MUSTER_REGISTRY_PASSWORD_FILE="/nowhere/password")))
        for words in (("role", "revoke-permission", "jobs", "/", "0"), ("role", "grant-permission", "jobs", "readwrite", "/other/", "/other0")):
            done = self.cluster.ctl(*words)
            self.assertEqual(done.returncode, 0, (words, done.stderr))
        self.assertIn("permission denied", self.load_fails(**self.env))
        self.write_password("wrong")
        self.assertIn("authentication failed", self.load_fails(**self.env))

    def test_a_job_that_is_not_let_in_fails_and_says_why(self):
        self.write_password("wrong")
        done = subprocess.run([MUSTER, "run", "-n", "2", "--max-restarts", "0", "--registry", self.cluster.endpoints, "--", os.path.join(PROGRAMS, "stepper"), "5"],
                              env=dict(CLEAN, **self.env), text=True, capture_output=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 5, done.stderr)  # permission denied; no worker was started
        self.assertIn("refuses: registry user 'worker': etcdserver: authentication failed", done.stderr)

    def test_a_job_trains_as_a_user(self):
        done = subprocess.run([MUSTER, "run", "-n", "2", "--registry", self.cluster.endpoints, "--", os.path.join(PROGRAMS, "stepper"), "50"],
                              env=dict(CLEAN, **self.env), text=True, capture_output=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("total 50"), 2, done.stdout)
        self.assertNotIn(PASSWORD, done.stdout + done.stderr)


@unittest.skipUnless(OPENSSL, "openssl is not installed")
class UsersUnderTls(Users):
    """Members that demand certificates; ours names nobody whom they know."""
    nobody = "permission denied"

    def open_cluster(self):
        return EtcdCluster(self.addCleanup, tls=TlsFiles(self.addCleanup))

    def setUp(self):
        super().setUp()
        cluster = self.cluster
        self.tls = {"MUSTER_REGISTRY_CA_FILE": cluster.ca, "MUSTER_REGISTRY_CERT_FILE": cluster.cert, "MUSTER_REGISTRY_KEY_FILE": cluster.key}
        self.env |= self.tls

    def load_fails(self, **env):
        return super().load_fails(**self.tls, **env) if "MUSTER_REGISTRY_CA_FILE" not in env else super().load_fails(**env)


class OnEmbedded(unittest.TestCase):
    def test_nothing_is_lost_when_the_embedded_one_is_killed_and_comes_back(self):
        with tempfile.TemporaryDirectory() as folder:
            registry = Embedded(self.addCleanup, "--data", os.path.join(folder, "registry.db"))
            load = Load(self, registry)
            for _ in range(3):
                load.wait_for_writes()
                registry.kill()
                registry.start()
            load.wait_for_writes()
            print(load.end()[0])

    def test_one_without_users_lets_in_who_has_a_name(self):
        with tempfile.NamedTemporaryFile("w", suffix=".password") as file:
            registry = Embedded(self.addCleanup)
            load = Load(self, registry, MUSTER_REGISTRY_USER="worker", MUSTER_REGISTRY_PASSWORD_FILE=file.name)
            load.wait_for_writes(600)
            load.end()


if __name__ == "__main__":
    unittest.main()
