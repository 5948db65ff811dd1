#!/usr/bin/env python3
"""What clouds and people do wrong to `muster resolve`: an exit code, a status, and a text that names the source and the
remedy, in time; never a hang, and never a secret, however much is shown."""
import concurrent.futures
import contextlib
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ.get("MUSTER_SOURCE_DIR", "."), "tests", "lib"))
from cloud_people import Person
from cloud_scripts import (GCE_SPEC, GROUP, POD_SPEC, TOKEN, answers, compute, echoing, group_page, metadata, node, pod,
                           pod_list, pods, ready_node, token_answer)
from fake_clouds import METADATA, PROGRAM, SECRETS, FakeCloud, entry, resolve, secrets_in, told

SHOWING = (  # everything, in turn for programs and for people
    (("--json", "--explain"), {"MUSTER_LOG_LEVEL": "trace"}),
    (("--explain", "--log-level", "trace"), {}),
)


class Nobody:
    base, authority, log = "http://127.0.0.1:1", "/nonexistent", ""


class Case:
    """One mistake. uri and variables have {base}, {hostport}, {authority}, {other} of the clouds, and attributes of
    Person."""

    def __init__(self, name, uri, script, code, status, words, variables=None, cloud=(), timeout="3", other=None):
        self.name, self.uri, self.script, self.code, self.status, self.words = name, uri, script, code, status, words
        self.variables, self.cloud, self.timeout, self.other = variables or {}, cloud, timeout, other

    def run(self, showing):
        options, more = showing
        with contextlib.ExitStack() as stack:
            other = stack.enter_context(FakeCloud(*self.other)) if self.other else Nobody
            cloud = stack.enter_context(FakeCloud(self.filled(self.script, {"other": other.base}), *self.cloud))
            person = stack.enter_context(Person(cloud.base))
            fill = {"base": cloud.base, "hostport": cloud.hostport, "authority": cloud.authority,
                    "other_authority": other.authority, "person": person, "other": other.base,
                    "kubeconfig": person.kubeconfig(cloud.base, token=SECRETS["kubeconfig-token"])}
            variables = {name: value.format(**fill) for name, value in self.variables.items()}
            done = resolve(self.uri.format(**fill), "--timeout", self.timeout, *options, **dict(more, **variables))
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
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
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
    """The answer, in which @TOKEN@ is what was sent."""
    text = answer.get("body")
    if isinstance(text, dict):
        answer = dict(answer, body={"error": {"message": f"who are you, {SECRETS[secret]}?"},
                                    "message": f"{SECRETS[secret]} is nobody"}) if "error" in text else answer
    return answer


class Answers(Together):
    def test_kubernetes(self):
        self.check([Case(name, KUBERNETES, [pods(**quoting(answer, "bearer"))], code, status, ["http://127", "pods", *words])
                    for name, answer, status, code, words in answers()])

    def test_gce(self):
        self.check([Case(name, GCE, metadata() + compute(**quoting(answer, "access-token")), code, status,
                         ["http://127", "listInstances", *words], HERE)
                    for name, answer, status, code, words in answers() if "circle" not in name])

    def test_tpu(self):
        cases = []
        for name, answer, status, code, words in answers():
            if "circle" in name:
                continue
            if name.startswith("wrong type"):
                status, code, words = "FAILED_PRECONDITION", 3, ["READY"]
            cases.append(Case(name, TPU, metadata() + [node(**quoting(answer, "access-token"))], code, status,
                              ["TPU n" if "READY" in words else "http://127", *words], HERE))
        self.check(cases)

    def test_the_metadata_server(self):
        cases = []
        for name, answer, status, code, _ in answers():
            answer = dict(answer, headers=dict(METADATA, **answer.get("headers", {})))
            if name == "too many":
                continue
            if name == "redirected in a circle":
                status, code = "UNKNOWN", 1
            script = metadata(token=entry("GET", TOKEN, **quoting(answer, "echo")))
            if name in ("who are you", "forbidden", "broken", "out of order"):
                continue  # nothing secret is sent there that could be quoted
            cases.append(Case(name, GCE, script + compute(), code, status, ["metadata server 127"], HERE))
        self.check(cases)


class TokenServer(Together):
    def test_files(self):
        kinds = {"user": "refresh-token", "external": "subject-token", "service": "client-secret"}
        with Person("http://x") as person:
            if not person.has_key:
                del kinds["service"]
        cases = []
        for kind, secret in kinds.items():
            variables = {"GOOGLE_APPLICATION_CREDENTIALS": "{person.%s}" % kind}
            for name, answer, status, code, _ in answers():
                if kind != "user" and name not in ("no JSON", "who are you", "too long", "never"):
                    continue
                if name in ("too many", "redirected in a circle"):
                    continue
                if name == "too deep":
                    status, code = "INVALID_ARGUMENT", 3
                if kind == "service" and "error" in str(answer.get("body")):
                    answer = dict(answer, body={"error_description": "no"})
                else:
                    answer = quoting(answer, secret)
                script = metadata() + [entry("POST", "/token", **answer)] + compute()
                cases.append(Case(f"{kind}: {name}", GCE + "&project=proj&zone=zone-b", script, code, status,
                                  [f"{kind}.json"], variables))
        self.check(cases)


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
                                   "--json", GOOGLE_APPLICATION_CREDENTIALS=path)
                    self.assertEqual(done.returncode, 3, done.stderr)
                    self.assertIn("key.json", done.stderr.splitlines()[-1])
                    self.assertEqual(secrets_in(told(done)), [])
        for name, content in (("no YAML", "users: [{token: '%s'" % secret), ("a list", '["%s"]' % secret),
                              ("no context", '{"users": [{"name": "u", "user": {"token": "%s"}}]}' % secret)):
            with self.subTest(name), Person("http://x") as person:
                path = person.write("kubeconfig", content)
                done = resolve(f"kubernetes:kubeconfig={path}", "--explain", "--json")
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
                # READY: then its worker is asked, which is none
                Case(name, TPU, metadata() + [node(times=1, **answer), node(body=ready_node())], 1, "UNIMPLEMENTED",
                     ["127.0.0.1", "GetStatus", "TensorFlow"], HERE, timeout="30"),
            ]
        stale = entry("GET", TOKEN, 1, headers=METADATA, body=token_answer("stale-token"))
        fresh = {"headers": {"Authorization": "Bearer " + SECRETS["access-token"]}}
        cases.append(Case("a fresh token", GCE, [stale] + metadata() + [
            entry("POST", GROUP, match=fresh, body=group_page("a", "b")), entry("POST", GROUP, status=401, body={})] +
            compute()[1:], 0, "OK", GCE_SPEC["worker"], HERE, timeout="30"))
        self.check(cases)


if __name__ == "__main__":
    if not PROGRAM.exists():
        print("fake_cloud is not built")
        sys.exit(77)
    unittest.main(verbosity=2)
