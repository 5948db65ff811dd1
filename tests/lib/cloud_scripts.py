"""Scripts of well-behaved clouds, and how they misbehave: what tests/integration/test_resolve_* lay before
`muster resolve`."""
import copy

from fake_clouds import METADATA, SECRETS, entry

GROUP = "/compute/v1/projects/proj/zones/zone-b/instanceGroups/ig/listInstances"
INSTANCE = "/compute/v1/projects/proj/zones/zone-b/instances/"
TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"
GCE_SPEC = {"worker": ["10.0.0.1:8470", "10.0.0.2:8470"]}
POD_SPEC = {"worker": ["10.1.0.1:8470", "10.1.0.2:8470"]}


def token_answer(name="access-token", **more):
    return dict({"access_token": SECRETS[name], "expires_in": 3600, "token_type": "Bearer"}, **more)


def metadata(**changed):
    """Entries of a metadata server; None: it is left out."""
    answers = {"project": entry("GET", "/computeMetadata/v1/project/project-id", headers=METADATA, body="proj"),
               "zone": entry("GET", "/computeMetadata/v1/instance/zone", headers=METADATA,
                             body="projects/7/zones/zone-b"),
               "token": entry("GET", TOKEN, headers=METADATA, body=token_answer())}
    answers.update(changed)
    return [answer for answer in answers.values() if answer is not None]


def group_page(*names, mark=None):
    body = {"items": [{"instance": f"https://x/instances/{name}", "status": "RUNNING"} for name in names]}
    return dict(body, nextPageToken=mark) if mark else body


def instance(name, ip):
    return entry("GET", INSTANCE + name, body={"name": name, "networkInterfaces": [{"networkIP": ip}]})


def compute(**group):
    """The API, whose answer to the list may be another."""
    return [entry("POST", GROUP, **(group or {"body": group_page("a", "b")})), instance("a", "10.0.0.1"),
            instance("b", "10.0.0.2")]


def pod(name, ip, phase="Running"):
    return {"metadata": {"name": name, "namespace": "ns"}, "status": {"phase": phase, "hostIP": ip, "podIP": ip}}


def pod_list(*pods, mark=None):
    metadata_ = {"resourceVersion": "7"}
    if mark:
        metadata_["continue"] = mark
    return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata_, "items": list(pods)}


PODS = pod_list(pod("a", "10.1.0.1"), pod("b", "10.1.0.2"))


def pods(times=None, **answer):
    return entry("GET", "/api/v1/.*pods", times, **(answer or {"body": PODS}))


NODE = "/v1/projects/proj/locations/zone-b/nodes/n"


def ready_node():
    """Its worker is the cloud itself: it speaks HTTP/2, but is no TensorFlow server."""
    return {"name": "n", "state": "READY", "health": "HEALTHY",
            "networkEndpoints": [{"ipAddress": "127.0.0.1", "port": "{{port}}"}]}


def node(times=None, **answer):
    return entry("GET", NODE, times, **answer)


def echoing(status, **headers):
    """An answer that quotes the token that it was sent."""
    text = "who are you, @TOKEN@?"
    return {"status": status, "headers": headers, "body": {"error": {"message": text}, "message": text}}


# Faults of one answer: name, response, status of the error, exit code, words of the text.
GIB = 1 << 30
ANSWERS = [
    ("no JSON", {"body": "{'items'"}, "INVALID_ARGUMENT", 3, ["bad JSON"]),
    ("garbage", {"raw": "\x01\x02 nonsense\r\n\r\n"}, "UNAVAILABLE", 4, ["not HTTP"]),
    ("wrong type", {"body": {"items": 7}}, "INVALID_ARGUMENT", 3, []),
    ("wrong type of an item", {"body": {"items": [7]}}, "INVALID_ARGUMENT", 3, []),
    ("a list instead of an object", {"body": "[]"}, "INVALID_ARGUMENT", 3, []),
    ("nothing", {"body": ""}, "INVALID_ARGUMENT", 3, []),
    ("an empty answer", {"close": True}, "UNAVAILABLE", 4, ["hung up"]),
    ("cut short", {"body": "0123456789", "truncate": 3}, "UNAVAILABLE", 4, ["cut short"]),
    ("too long", {"body": " ", "repeat_bytes": GIB}, "RESOURCE_EXHAUSTED", 1, ["must be at most"]),
    ("never", {"hang": True}, "DEADLINE_EXCEEDED", 4, ["before the deadline"]),
    ("without end", {"chunks": [{"body": "{"}], "hold": True}, "DEADLINE_EXCEEDED", 4, ["did not end"]),
    ("who are you", echoing(401), "UNAUTHENTICATED", 5, ["401"]),
    ("forbidden", echoing(403), "PERMISSION_DENIED", 5, ["403"]),
    ("not there", {"status": 404, "body": {}}, "NOT_FOUND", 3, ["404"]),
    ("too many", echoing(429, **{"Retry-After": "3600"}), "RESOURCE_EXHAUSTED", 1, ["429"]),
    ("broken", echoing(500), "INTERNAL", 1, ["500"]),
    ("out of order", echoing(503), "UNAVAILABLE", 4, ["503"]),
    ("too deep", {"body": "[" * 100000}, "RESOURCE_EXHAUSTED", 1, ["deep"]),
    ("redirected in a circle", {"status": 302, "headers": {"Location": "{{base}}/api/v1/pods"}}, "FAILED_PRECONDITION",
     3, ["redirect"]),
]


def answers():
    return copy.deepcopy(ANSWERS)
