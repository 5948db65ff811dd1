#!/usr/bin/env python3
"""What clouds and people do wrong to `muster resolve`: an exit code, a status, and a text that names the source and the
remedy, in time; never a hang, and never a secret, however much is shown."""
import concurrent.futures
import contextlib
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ.get("MUSTER_SOURCE_DIR", "."), "tests", "lib"))
import guard

guard.enter()
import needs
from cloud_people import Person
from cloud_scripts import (GCE_SPEC, GROUP, POD_SPEC, TOKEN, answers, compute, echoing, group_page, metadata, node, pod,
                           pod_list, pods, ready_node, token_answer)
from fake_clouds import METADATA, MUSTER, PATIENCE_S, SECRETS, FakeCloud, entry, resolve, secrets_in, told
from main_again import SideBySide

SHOWING = (  # everything, in turn for programs and for people
    (("--json", "--explain"), {"MUSTER_LOG_LEVEL": "trace"}),
    (("--explain", "--log-level", "trace"), {}),
)


MAINS = SideBySide(str(MUSTER), PATIENCE_S)


def tearDownModule():  # pylint: disable=invalid-name
    lost = MAINS.end()
    assert not lost, lost


class Nobody:
    base, authority, log = "http://127.0.0.1:1", "/nonexistent", ""


class Case:
    """One mistake. uri and variables have {base}, {hostport}, {authority}, {other} of the clouds, and attributes of
    Person."""

    def __init__(self, name, uri, script, code, status, words, variables=None, cloud=(), timeout=None, other=None):
        self.name, self.uri, self.script, self.code, self.status, self.words = name, uri, script, code, status, words
        self.variables, self.cloud, self.other = variables or {}, cloud, other
        # A server that is asked again gets the time for all attempts: the last one must not meet the deadline.
        self.timeout = timeout or ("3" if status == "DEADLINE_EXCEEDED" else "60")

    def run(self, showing):
        options, more = showing
        with contextlib.ExitStack() as stack:
            other = stack.enter_context(FakeCloud(*self.other)) if self.other else Nobody
            cloud = stack.enter_context(FakeCloud(self.filled(self.script, {"other": other.base}), *self.cloud))
            person = stack.enter_context(Person(cloud.base))
            fill = {"base": cloud.base, "hostport": cloud.hostport, "authority": cloud.authority,
                    "other_authority": other.authority, "person": person, "other": other.base,
                    "port": cloud.port, "kubeconfig_with_key": person.kubeconfig(cloud.base, "with-key", has_key=True),
                    "kubeconfig": person.kubeconfig(cloud.base, "kubeconfig")}
            variables = {name: value.format(**fill) for name, value in self.variables.items()}
            done = resolve(self.uri.format(**fill), "--timeout", self.timeout, *options, by=MAINS, **dict(more, **variables))
            return done, secrets_in(told(done), person.marks), other.log

    @staticmethod
    def filled(script, fill):
        text = repr(script)
        for name, value in fill.items():
            text = text.replace("{%s}" % name, value)
        return eval(text)  # pylint: disable=eval-used


def explain_to(case, showing, done):
    return f"{case.name} {' '.join(showing[0])}: exit {done.returncode}\n{done.stdout}{done.stderr}"


class Together(unittest.TestCase):
    """Most of a case is waiting: they run side by side."""

    def check(self, cases):
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            turns = [(case, SHOWING[number % 2]) for number, case in enumerate(cases)]
            runs = [(case, showing, pool.submit(case.run, showing)) for case, showing in turns]
            for case, showing, run in runs:
                with self.subTest(case.name, options=showing[0]):
                    self.judge(case, showing, *run.result())

    def judge(self, case, showing, done, secrets, other_log):
        story = explain_to(case, showing, done)
        self.assertEqual(secrets, [], story)
        self.assertEqual(done.returncode, case.code, story)
        self.assertNotRegex(done.stderr, "Sanitizer|runtime error", story)
        self.assertEqual(other_log, "", "a redirect was followed\n" + story)
        if case.code == 0:
            for word in case.words:
                self.assertIn(word, done.stdout.replace(" ", ""), story)
            return
        last = next((line for line in done.stderr.splitlines() if line.startswith("muster resolve: ")), "")
        self.assertEqual(done.stdout, "", story)
        self.assertRegex(last, rf"^muster resolve: .+ \({case.status}\)$", story)
        for word in case.words:
            self.assertIn(word, last, story)
        self.assertRegex(last, r"; .*\w|\?|or set", "no remedy\n" + story)


KUBERNETES = "kubernetes:api_server={base}&token_file={person.token_file}"
GCE = "gce:instance_group=ig&port=8470&api_endpoint={base}"
TPU = "tpu:tpu=n&api_endpoint={base}"
HERE = {"GCE_METADATA_HOST": "{hostport}"}


def quoting(answer, secret):
    """The answer, with what was sent for @TOKEN@."""
    return json.loads(json.dumps(answer).replace("@TOKEN@", SECRETS[secret]))


def kubernetes_cases():
    return [Case("kubernetes: " + name, KUBERNETES, [pods(**quoting(answer, "bearer"))], code, status,
                 ["http://127", "pods", *words]) for name, answer, status, code, words in answers()]


def gce_cases():
    return [Case("gce: " + name, GCE, metadata() + compute(**quoting(answer, "access-token")), code, status,
                 ["http://127", "listInstances", *words], HERE)
            for name, answer, status, code, words in answers() if "circle" not in name]


def tpu_cases():
    for name, answer, status, code, words in answers():
        source = "http://127"
        if "circle" in name:
            continue
        if name.startswith("wrong type"):  # an object that tells no state
            source, status, code, words = "TPU n", "FAILED_PRECONDITION", 3, ["READY"]
        yield Case("tpu: " + name, TPU, metadata() + [node(**quoting(answer, "access-token"))], code, status,
                   [source, *words], HERE)


def metadata_cases():
    """Nothing secret is sent to a metadata server that it could quote."""
    for name, answer, status, code, _ in answers():
        if name in ("who are you", "forbidden", "broken", "out of order", "too many"):
            continue
        if name == "redirected in a circle":
            status, code = "UNKNOWN", 1
        answer = dict(answer, headers=dict(METADATA, **answer.get("headers", {})))
        yield Case("metadata: " + name, GCE, metadata(token=entry("GET", TOKEN, **answer)) + compute(), code, status,
                   ["metadata server 127"], HERE)


def token_cases(kinds):
    """Each kind of file, and the secret that its token server quotes."""
    for kind, secret in kinds.items():
        for name, answer, status, code, _ in answers():
            if kind != "user" and name not in ("no JSON", "who are you", "too long", "never"):
                continue
            if name in ("too many", "redirected in a circle"):
                continue
            if name == "too deep":
                status, code = "INVALID_ARGUMENT", 3
            if secret is not None:
                answer = quoting(answer, secret)
            elif "error" in str(answer.get("body")):
                answer = dict(answer, body={"error_description": "no"})
            script = metadata() + [entry("POST", "/token", **answer)] + compute()
            yield Case(f"{kind}: {name}", GCE + "&project=proj&zone=zone-b", script, code, status, [f"{kind}.json"],
                       {"GOOGLE_APPLICATION_CREDENTIALS": "{person.%s}" % kind})


class Answers(Together):
    def test_each_fault_of_each_server(self):
        kinds = {"user": "refresh-token", "external": "subject-token"}
        if Person.make_key() is not None:
            kinds["service"] = None
        self.check([*kubernetes_cases(), *gce_cases(), *tpu_cases(), *metadata_cases(), *token_cases(kinds)])


class Mistakes(Together):
    """Of people, and of clouds in more than one answer."""

    def test_what_is_missing(self):
        self.check([
            Case("no pod", "kubernetes:location=within", [], 3, "FAILED_PRECONDITION", ["KUBERNETES_SERVICE_HOST", "kubeconfig"]),
            Case("no kubeconfig", "kubernetes:location=off", [], 3, "NOT_FOUND", ["kubeconfig"]),
            Case("no file of credentials", GCE, [], 3, "NOT_FOUND", ["/nonexistent/x.json", "GOOGLE_APPLICATION_CREDENTIALS"],
                 {"GOOGLE_APPLICATION_CREDENTIALS": "/nonexistent/x.json"}),
            Case("no group", "gce:port=1", [], 3, "INVALID_ARGUMENT", ["instance group"]),
            Case("no TPU", "tpu:", [], 3, "INVALID_ARGUMENT", ["TPU_NAME"]),
        ])

    def test_what_people_write(self):
        secret = SECRETS["quoted"]
        for name, content in (("no JSON", '{"private_key" "%s"}' % secret), ("no type", {"private_key": secret}),
                              ("no key", {"type": "service_account", "client_email": "a", "private_key": secret,
                                          "token_uri": "https://127.0.0.1:1/"}),
                              ("plain http", {"type": "authorized_user", "client_id": secret, "client_secret": secret,
                                              "refresh_token": secret, "token_uri": "http://far.example/" + secret}),
                              ("wrong type", [secret])):
            for scheme in (GCE, TPU):
                with self.subTest(name, uri=scheme), Person("http://x") as person:
                    path = person.write("key.json", content)
                    done = resolve(scheme.format(base="http://127.0.0.1:1") + "&project=p&zone=z", "--explain",
                                   "--json", by=MAINS, GOOGLE_APPLICATION_CREDENTIALS=path)
                    self.assertEqual(done.returncode, 3, done.stderr)
                    self.assertIn("key.json", done.stderr.splitlines()[-1])
                    self.assertEqual(secrets_in(told(done)), [])
        for name, content in (("no YAML", "users: [{token: '%s'" % secret), ("a list", '["%s"]' % secret),
                              ("no context", '{"users": [{"name": "u", "user": {"token": "%s"}}]}' % secret)):
            with self.subTest(name), Person("http://x") as person:
                path = person.write("kubeconfig", content)
                done = resolve(f"kubernetes:kubeconfig={path}", "--explain", "--json", by=MAINS)
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertIn("kubeconfig", done.stderr.splitlines()[-1])
                self.assertEqual(secrets_in(told(done)), [])

    def test_tasks_that_do_not_exist(self):
        self.check([
            Case("unknown job", KUBERNETES + "&task_type=ps&task_id=0", [pods()], 3, "NOT_FOUND", ["'ps'"]),
            Case("index outside", KUBERNETES + "&task_type=worker&task_id=7", [pods()], 3, "NOT_FOUND", ["task 7", "2"]),
            Case("index outside", GCE + "&task_id=7", metadata() + compute(), 3, "NOT_FOUND", ["task 7", "2"], HERE),
            Case("index outside", TPU + "&task_id=7", metadata() + [node(body=ready_node())], 3, "NOT_FOUND",
                 ["task 7", "1"], HERE),
            Case("no pods", KUBERNETES, [pods(body=pod_list())], 0, "OK", ['worker']),
            Case("no instances", GCE, metadata() + compute(body=group_page()), 3, "NOT_FOUND", ["worker", "task 0"], HERE),
        ])

    def test_who_is_not_ready(self):
        self.check([
            Case("a pod waits", KUBERNETES, [pods(body=pod_list(pod("a", "10.0.0.1"), pod("b", "", "Pending")))], 3,
                 "FAILED_PRECONDITION", ["pod 'b'", "Pending", "wait until"]),
            Case("a node waits", TPU, metadata() + [node(body={"state": "CREATING"})], 3, "FAILED_PRECONDITION",
                 ["TPU n", "CREATING", "wait until"], HERE),
            Case("an instance without address", GCE, metadata() + [entry("POST", GROUP, body=group_page("a")),
                                                                  entry("GET", "/compute/.*", body={"name": "a"})], 3,
                 "INVALID_ARGUMENT", ["instances/a", "networkIP"], HERE),
        ])

    def test_pages_without_end(self):
        self.check([
            Case("pods", KUBERNETES, [pods(body=pod_list(pod("a", "10.0.0.1"), mark="again"))], 1, "RESOURCE_EXHAUSTED",
                 ["without end", "1000"], timeout="60"),
            Case("instances", GCE, metadata() + compute(body=group_page("a", mark="again")), 1, "RESOURCE_EXHAUSTED",
                 ["without end", "1000"], HERE, timeout="60"),
        ])


class Trust(Together):
    def test_certificates(self):
        trusting = {"SSL_CERT_FILE": "{authority}", "GCE_METADATA_HOST": "127.0.0.1:1",
                    "GOOGLE_APPLICATION_CREDENTIALS": "{person.user}"}
        wrong = dict(trusting, SSL_CERT_FILE="{other_authority}")
        place = "&project=proj&zone=zone-b"
        token = entry("POST", "/token", body=token_answer())
        scripts = {KUBERNETES + "&ca_file={authority}": [pods()], GCE + place: [token] + compute(), TPU + place: [token]}
        cases = []
        for uri, script in scripts.items():
            cases.append(Case("expired", uri, script, 5, "UNAUTHENTICATED", ["https://127", "expired", "certificate"],
                              trusting, cloud=("--tls", "--expired")))
            cases.append(Case("wrong authority", uri.replace("{authority}", "{other_authority}"), script, 5,
                              "UNAUTHENTICATED", ["https://127", "certificate does not hold"], wrong, cloud=("--tls",),
                              other=([], "--tls")))
        uri = GCE + place
        cases.append(Case("right authority", uri, scripts[uri], 0, "OK", ["10.0.0.2:8470"], trusting, cloud=("--tls",)))
        self.check(cases)

    def test_redirects(self):
        away = {"status": 307, "headers": {"Location": "{other}/elsewhere"}}
        elsewhere = ([entry("GET", "/.*", body={"items": []}), entry("POST", "/.*", body={"items": []})],)
        user = dict(HERE, GOOGLE_APPLICATION_CREDENTIALS="{person.user}")
        self.check([
            Case("pods elsewhere", KUBERNETES, [pods(**away)], 3, "FAILED_PRECONDITION", ["credentials must not go"],
                 other=elsewhere),
            Case("instances elsewhere", GCE, metadata() + compute(**away), 3, "FAILED_PRECONDITION",
                 ["credentials must not go"], HERE, other=elsewhere),
            Case("nodes elsewhere", TPU, metadata() + [node(**away)], 3, "FAILED_PRECONDITION",
                 ["credentials must not go"], HERE, other=elsewhere),
            Case("tokens elsewhere", GCE, metadata() + [entry("POST", "/token", **away)] + compute(), 3,
                 "FAILED_PRECONDITION", ["credentials must not go", "user.json"], user, other=elsewhere),
            Case("https to http", KUBERNETES + "&ca_file={authority}", [pods(**away)], 3, "FAILED_PRECONDITION",
                 ["https to http"], cloud=("--tls",), other=elsewhere),
        ])

    def test_metadata_servers_that_are_none(self):
        for_all = []
        for uri in (GCE, TPU):
            for_all += [
                Case("unreachable", uri, [], 4, "UNAVAILABLE", ["127.0.0.1:1", "GCE_METADATA_HOST", "project"]),
                Case("without flavor", uri, [entry("GET", "/computeMetadata/.*", body="proj")], 4, "UNAVAILABLE",
                     ["lacks Metadata-Flavor", "GCE_METADATA_HOST"], HERE),
                Case("no token there", uri + "&project=proj&zone=zone-b", [entry("GET", "/computeMetadata/.*", body={})], 4,
                     "UNAVAILABLE", ["lacks", "gcloud auth application-default login"], HERE),
            ]
        self.check(for_all)


    def test_metadata_servers_that_stumble(self):
        """Over the zone."""
        path = "/computeMetadata/v1/instance/zone"
        cases = []
        for name, answer, code, status, words in (
                ("never", {"hang": True}, 4, "DEADLINE_EXCEEDED", ["no answer before", "GCE_METADATA_HOST"]),
                ("404", {"status": 404, "body": "", "headers": METADATA}, 3, "NOT_FOUND", ["404", "name it yourself"]),
                ("nothing", {"body": "", "headers": METADATA}, 3, "INVALID_ARGUMENT", ["no name", "name it yourself"]),
                ("lines", {"body": "a b\nc", "headers": METADATA}, 3, "INVALID_ARGUMENT", ["no name", "name it yourself"])):
            for uri in (GCE, TPU):
                cases.append(Case(name, uri, metadata(zone=entry("GET", path, **answer)), code, status,
                                  ["127.0.0.1", "zone", *words], HERE))
        self.check(cases)

    def test_who_we_are_in_kubernetes(self):
        kubeconfig = "kubernetes:kubeconfig={kubeconfig}"
        within = "kubernetes:token_file={person.token_file}&ca_file={authority}"
        pod_ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "{port}"}
        self.check([
            Case("token of a kubeconfig", kubeconfig, [pods(**quoting(echoing(401), "kubeconfig-token"))], 5,
                 "UNAUTHENTICATED", ["401", "renew the token"]),
            Case("key without certificate", "kubernetes:kubeconfig={kubeconfig_with_key}", [pods()], 3, "INVALID_ARGUMENT",
                 ["kubeconfig", "certificate without key", "; "]),
            Case("token of a pod", within, [pods(**quoting(echoing(403), "bearer"))], 5, "PERMISSION_DENIED",
                 ["403", "can-i list pods"], pod_, cloud=("--tls",)),
            Case("certificate in a pod", within, [pods()], 5, "UNAUTHENTICATED", ["expired", "authority"], pod_,
                 cloud=("--tls", "--expired")),
            Case("no token in a pod", "kubernetes:token_file=/nonexistent/token", [], 3, "FAILED_PRECONDITION",
                 ["/nonexistent/token", "does the pod mount it"], pod_),
            Case("no authorities", KUBERNETES + "&ca_file=/nonexistent/ca", [pods()], 3, "FAILED_PRECONDITION",
                 ["/nonexistent/ca", "mend that file"], cloud=("--tls",)),
            Case("works", kubeconfig, [pods()], 0, "OK", POD_SPEC["worker"]),
            Case("works in a pod", within, [pods()], 0, "OK", POD_SPEC["worker"], pod_, cloud=("--tls",)),
        ])


class SecondChance(Together):
    """What passes is asked for again."""

    def test_it_works_at_last(self):
        again = [("401", echoing(401)), ("429", {"status": 429, "headers": {"Retry-After": "0"}, "body": {}}),
                 ("500", {"status": 500, "body": {}}), ("503", {"status": 503, "body": {}}), ("cut", {"close": True})]
        cases = []
        for name, answer in again:
            cases += [
                Case(name, KUBERNETES, [pods(times=1, **answer), pods()], 0, "OK", POD_SPEC["worker"], timeout="30"),
                Case(name, GCE, metadata() + [entry("POST", GROUP, 1, **answer)] + compute(), 0, "OK", GCE_SPEC["worker"],
                     HERE, timeout="30"),
                # READY: then its worker is asked for its devices, which is none; the cluster is told all the same
                Case(name, TPU, metadata() + [node(times=1, **answer), node(body=ready_node())], 0, "OK",
                     ["worker", "127.0.0.1", "warning", "num_accelerators", "GetStatus"], HERE, timeout="30"),
            ]
        stale = entry("GET", TOKEN, 1, headers=METADATA, body=token_answer("stale-token"))
        fresh = {"headers": {"Authorization": "Bearer " + SECRETS["access-token"]}}
        cases.append(Case("a fresh token", GCE, [stale] + metadata() + [
            entry("POST", GROUP, match=fresh, body=group_page("a", "b")), entry("POST", GROUP, status=401, body={})] +
            compute()[1:], 0, "OK", GCE_SPEC["worker"], HERE, timeout="30"))
        self.check(cases)


if __name__ == "__main__":
    needs.program("fake_cloud")
    unittest.main(verbosity=2)
