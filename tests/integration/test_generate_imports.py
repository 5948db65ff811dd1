#!/usr/bin/env python3
"""A project of its own, built against the installed library, whose .proto files have proto3's optional fields, well-known types and a chain
of imports that two targets share. Google's own protobuf and grpcio are on the other side of both roles: what is set there is set
here, and the reverse. A changed import makes the messages anew, and so does an import that is added.
"""
import itertools
import os
import pathlib
import random
import subprocess
import sys
import tempfile
from concurrent import futures

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import guard

guard.enter()
import needs

BUILD = os.environ.get("MUSTER_BINARY_DIR", "build-asan")
needs.tool("protoc-gen-c", "protobuf-c-compiler")
needs.run_with("grpc", "python3-grpcio")
needs.run_with("google.protobuf.descriptor_pool", "python3-protobuf")
import grpc

FILES = {
    "api/store/v1/store.proto": '''syntax = "proto3";
package store.v1;
import "common/kind.proto"; // of another folder
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
/* import "not/there.proto"; */
message Item {
  optional int32 count = 1;
  optional string name = 2;
  optional bytes data = 3;
  optional common.Kind kind = 4;
  optional Item inner = 5;
  optional bool flag = 6;
  optional double weight = 7;
  optional sint64 offset = 8;
  optional fixed32 mark = 9;
  string plain_text = 20;
  int64 plain_number = 21;
  common.Kind plain_kind = 22;
  bytes plain_data = 23;
  repeated int32 numbers = 24;
  repeated common.Kind kinds = 25;
  map<string, int32> counts = 26;
  map<int32, Item> items = 27;
  oneof choice { string text = 28; int32 number = 29; common.Unit unit = 30; }
  google.protobuf.Timestamp at = 40;
  google.protobuf.Duration lasting = 41;
  google.protobuf.Any extra = 42;
  google.protobuf.FieldMask mask = 43;
  google.protobuf.Struct properties = 44;
  google.protobuf.Int64Value wrapped = 45;
  google.protobuf.StringValue wrapped_text = 46;
}
message Seen { Item item = 1; repeated string present = 2; }
service Store {
  rpc Put(Item) returns (Seen);
  rpc Now(google.protobuf.Empty) returns (google.protobuf.Timestamp);
}
''',
    "third_party/common/kind.proto": '''syntax = "proto3";
package common;
import public 'common/unit.proto';
enum Kind { KIND_UNKNOWN = 0; KIND_SMALL = 1; KIND_LARGE = 2; }
message Sized { Kind kind = 1; Unit unit = 2; }
''',
    "third_party/common/unit.proto": '''syntax = "proto3";
package common;
import public "google/protobuf/timestamp.proto";
message Unit { optional string symbol = 1; google.protobuf.Timestamp since = 2; }
''',
    "api/other/other.proto": '''syntax = "proto3";
package other;
import "common/kind.proto";
message Other { common.Sized sized = 1; common.Kind kind = 2; }
''',
    "CMakeLists.txt": '''cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES C)
find_package(muster 0.1 REQUIRED)
set(paths PROTO_PATH api IMPORT_PATH third_party)
add_library(other STATIC other.c)
muster_generate(other api/other/other.proto ${paths})
target_link_libraries(other muster::muster protobuf-c)
add_executable(service service.c)
muster_generate(service api/store/v1/store.proto ${paths})
target_link_libraries(service PRIVATE other muster::muster protobuf-c)
add_executable(second second.c)
muster_generate(second api/store/v1/store.proto ${paths})
target_link_libraries(second other muster::muster protobuf-c)
''',
    "other.c": '''#include "other/other.muster.h"
size_t other_bytes(void);
size_t other_bytes(void)
{
    Other__Other other;
    Common__Sized sized;
    other__other__init(&other);
    common__sized__init(&sized);
    sized.kind = COMMON__KIND__KIND_LARGE;
    other.sized = &sized;
    return other__other__get_packed_size(&other);
}
''',
    "second.c": '''#include "store/v1/store.muster.h"
#include "google/protobuf/timestamp.pb-c.h"
size_t other_bytes(void);
int main(void)
{
    Google__Protobuf__Timestamp at;
    Common__Unit unit;
    google__protobuf__timestamp__init(&at);
    common__unit__init(&unit);
    at.seconds = 5;
    unit.since = &at;
    return common__unit__get_packed_size(&unit) == 4 && other_bytes() == 4 ? 0 : 1;
}
''',
    "service.c": r'''#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <muster/muster.h>
#include "store/v1/store.muster.h"

static struct muster_env *env;
static struct muster_wake *stop;

static void on_put(struct muster_rpc *rpc, const Store__V1__Item *item)
{
    Store__V1__Seen seen;
    char *present[16];
    size_t count = 0;

    if (item->has_count) present[count++] = "count";
    if (item->name != NULL) present[count++] = "name";
    if (item->has_data) present[count++] = "data";
    if (item->has_kind) present[count++] = "kind";
    if (item->inner != NULL) present[count++] = "inner";
    if (item->has_flag) present[count++] = "flag";
    if (item->has_weight) present[count++] = "weight";
    if (item->has_offset) present[count++] = "offset";
    if (item->has_mark) present[count++] = "mark";
    store__v1__seen__init(&seen);
    seen.item = (Store__V1__Item *)item;
    seen.present = present;
    seen.n_present = count;
    (void)store_v1_store_put_reply(rpc, &seen);
}

static void on_now(struct muster_rpc *rpc, const Google__Protobuf__Empty *nothing)
{
    Google__Protobuf__Timestamp at;

    (void)nothing;
    google__protobuf__timestamp__init(&at);
    at.seconds = 1234567890;
    at.nanos = 5;
    (void)store_v1_store_now_reply(rpc, &at);
}

static void on_signal(int number) { (void)number; muster_wake_signal(stop); }
static void on_closed(struct muster_rpc_server *server) { (void)server; muster_loop_stop(env->loop); }
static void on_stop(struct muster_wake *wake)
{
    muster_rpc_server_close(muster_wake_data(wake), muster_loop_after_ns(env->loop, MUSTER_NS_PER_S), on_closed);
}

static int serve(void)
{
    const struct store_v1_store_handlers handlers = {.put = {.on_request = on_put}, .now = {.on_request = on_now}};
    const struct muster_descriptors *sets[] = {&store_v1_store_descriptors};
    struct muster_rpc_server *server;
    struct muster_address address;
    struct muster_error error;
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    if (muster_rpc_server_open(env, NULL, &server) != MUSTER_OK ||
        store_v1_store_service_add(server, &handlers, NULL) != MUSTER_OK ||
        muster_rpc_reflection_open(server, sets, 1) != MUSTER_OK ||
        muster_address_parse("127.0.0.1:0", &address, &error) != MUSTER_OK ||
        muster_rpc_server_listen(server, &address, &address, &error) != MUSTER_OK ||
        muster_wake_open(env->mem, env->loop, on_stop, server, &stop) != MUSTER_OK)
        return 1;
    signal(SIGTERM, on_signal);
    printf("%s\n", muster_address_format(&address, text));
    fflush(stdout);
    muster_loop_run(env->loop);
    muster_wake_close(stop);
    return 0;
}

static void on_done(struct store_v1_store_put_call *call, enum muster_rc rc, const Store__V1__Seen *seen)
{
    if (rc != MUSTER_OK)
        fprintf(stderr, "%s\n", call->stub.call.status.text);
    for (size_t i = 0; rc == MUSTER_OK && i < seen->n_present; i++)
        printf("%s\n", seen->present[i]);
    muster_loop_stop(env->loop);
}

/* All optional fields are set to what they are without being set. */
static int call(const char *target)
{
    struct store_v1_store_put_call put = {0};
    struct muster_call_options options = {.deadline_ns = muster_loop_after_ns(env->loop, 60 * MUSTER_NS_PER_S)};
    struct muster_channel *channel;
    Store__V1__Item item, inner;
    struct muster_error error;

    if (muster_channel_open(env, target, NULL, &channel, &error) != MUSTER_OK)
        return 1;
    store__v1__item__init(&item);
    store__v1__item__init(&inner);
    item.has_count = item.has_data = item.has_kind = item.has_flag = item.has_weight = item.has_offset = item.has_mark = 1;
    item.name = "";
    item.inner = &inner;
    if (store_v1_store_put_start(&put, channel, &options, &item, on_done) != MUSTER_OK)
        return 1;
    muster_loop_run(env->loop);
    muster_channel_close(channel, NULL);
    for (int turn = 0; turn < 8; turn++)
        muster_loop_turn(env->loop, 0);
    return 0;
}

int main(int argc, char **argv)
{
    int code;

    if (muster_env_system_open(NULL, &env) != MUSTER_OK || muster_net_system_open(env, &env->net) != MUSTER_OK)
        return 1;
    code = argc > 1 ? call(argv[1]) : serve();
    muster_net_system_close(env->net);
    muster_env_system_close(env);
    return code;
}
''',
}
OPTIONAL = ["count", "name", "data", "kind", "inner", "flag", "weight", "offset", "mark"]


def expect(what, is_right):
    print(("ok " if is_right else "FAILED ") + what)
    if not is_right:
        sys.exit(1)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout, done.stderr)
        sys.exit(f"FAILED {' '.join(command)}")
    return done.stdout


def sanitizers():
    with open(os.path.join(BUILD, "CMakeCache.txt")) as cache:
        value = next((line.split("=", 1)[1].strip() for line in cache if line.startswith("MUSTER_SANITIZE:")), "")
    return f"-fsanitize={value}" if value else ""


class Project:
    def __init__(self, work):
        self.work, self.usr, self.build = work, os.path.join(work, "usr"), os.path.join(work, "b")
        run("cmake", "--install", BUILD, "--prefix", self.usr)
        for name, text in FILES.items():
            self.write(name, text)
        run("cmake", "-S", work, "-B", self.build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={self.usr}",
            f"-DCMAKE_C_FLAGS={sanitizers()} -Wall -Werror=implicit-function-declaration")
        self.make()

    def write(self, name, text):
        path = os.path.join(self.work, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def make(self):
        run("cmake", "--build", self.build)

    def python(self):
        """Google's protobuf of the same files."""
        names = [name for name in FILES if name.endswith(".proto")]
        roots = [os.path.join(self.work, "api"), os.path.join(self.work, "third_party"), os.path.join(self.usr, "include", "muster-proto")]
        out = os.path.join(self.work, "python")
        os.makedirs(out, exist_ok=True)
        run("protoc", *[f"--proto_path={root}" for root in roots], f"--python_out={out}", *[os.path.join(self.work, name) for name in names])
        sys.path.insert(0, out)

    def headers(self, name):
        found = [os.path.join(folder, name) for folder, _, files in os.walk(self.build) if name in files]
        return {path: open(path).read() for path in found}


def set_plain(item, rng, pb, kinds):
    """Fields that are not optional, each there or not."""
    choices = [
        lambda: setattr(item, "plain_text", rng.choice(["", "words", "wörter"])),
        lambda: setattr(item, "plain_number", rng.choice([0, -1, 1 << 60])),
        lambda: setattr(item, "plain_kind", rng.choice(kinds)),
        lambda: setattr(item, "plain_data", rng.choice([b"", b"\x00\xff"])),
        lambda: item.numbers.extend(rng.choices([0, 1, -7, 1 << 30], k=rng.randrange(5))),
        lambda: item.kinds.extend(rng.choices(kinds, k=rng.randrange(4))),
        lambda: item.counts.update({rng.choice(["", "a", "b"]): rng.randrange(3)}),
        lambda: item.items[rng.randrange(2)].SetInParent(),
        lambda: setattr(item, "text", rng.choice(["t", "text"])),
        lambda: setattr(item, "number", rng.choice([0, 5])),
        lambda: setattr(item.unit, "symbol", rng.choice(["", "kg"])),
        lambda: item.at.FromNanoseconds(rng.randrange(1 << 62)),
        lambda: item.lasting.FromMilliseconds(rng.randrange(-1000, 1000)),
        lambda: item.extra.Pack(pb.Seen(present=["x"])),
        lambda: item.mask.paths.extend(["a.b", "c"]),
        lambda: item.properties.update({"a": 1.5, "b": [True, None, "x"], "c": {"d": {}}}),
        lambda: setattr(item.wrapped, "value", rng.choice([0, 7])),
        lambda: setattr(item.wrapped_text, "value", rng.choice(["", "w"])),
    ]
    for choice in rng.sample(choices, rng.randrange(len(choices))):
        choice()


def set_optional(item, name, is_zero, pb):
    if name == "inner":
        item.inner.SetInParent()
        if not is_zero:
            item.inner.count = 0
    else:
        values = {"count": -3, "name": "n", "data": b"d", "kind": 2, "flag": True, "weight": 0.25, "offset": -9, "mark": 77}
        zeros = {"count": 0, "name": "", "data": b"", "kind": 0, "flag": False, "weight": 0.0, "offset": 0, "mark": 0}
        setattr(item, name, (zeros if is_zero else values)[name])


def check_server(service, pb, empty, timestamp):
    server = subprocess.Popen([service], stdout=subprocess.PIPE, text=True)
    try:
        with grpc.insecure_channel(server.stdout.readline().strip()) as channel:
            put = channel.unary_unary("/store.v1.Store/Put", request_serializer=pb.Item.SerializeToString,
                                      response_deserializer=pb.Seen.FromString)
            rng, wrong = random.Random(7), []
            for bits in itertools.product((False, True), repeat=len(OPTIONAL)):
                item = pb.Item()
                wanted = [name for name, is_set in zip(OPTIONAL, bits) if is_set]
                for name in wanted:
                    set_optional(item, name, rng.random() < 0.5, pb)
                set_plain(item, rng, pb, [0, 1, 2, 99])
                seen = put(item, timeout=60)
                if seen.item.SerializeToString(deterministic=True) != item.SerializeToString(deterministic=True) or list(seen.present) != wanted:
                    wrong.append((item, wanted, seen))
            expect(f"each of {2 ** len(OPTIONAL)} sets of optional fields goes there and back{wrong[:1] or ''}", not wrong)
            raw = channel.unary_unary("/store.v1.Store/Put")(b"", timeout=60)
            expect("what is not set takes no bytes", raw == b"\x0a\x00")
            now = channel.unary_unary("/store.v1.Store/Now", request_serializer=empty.Empty.SerializeToString,
                                      response_deserializer=timestamp.Timestamp.FromString)(empty.Empty(), timeout=60)
            expect("a method of well-known types", (now.seconds, now.nanos) == (1234567890, 5))
    finally:
        server.terminate()
        code = server.wait(timeout=60)
    expect("the server ends in order", code == 0)


def check_client(service, pb):
    def put(item, _context):
        return pb.Seen(present=[name for name in OPTIONAL if item.HasField(name)])

    handler = grpc.unary_unary_rpc_method_handler(put, request_deserializer=pb.Item.FromString,
                                                  response_serializer=pb.Seen.SerializeToString)
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("store.v1.Store", {"Put": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        seen = run(service, f"127.0.0.1:{port}").split()
    finally:
        server.stop(None)
    expect("zeros that were set here are set there", seen == OPTIONAL)


def check_changes(project):
    project.write("third_party/common/unit.proto", FILES["third_party/common/unit.proto"].replace(
        "optional string symbol = 1;", "optional string symbol = 1; optional int32 power = 7;"))
    project.make()
    headers = project.headers("unit.pb-c.h")
    expect("an import of an import that changes is made again", headers and all("has_power" in text for text in headers.values()))
    project.write("third_party/common/added.proto", 'syntax = "proto3"; package common; message Added { optional int32 a = 1; }\n')
    kind = FILES["third_party/common/kind.proto"].replace("enum Kind", 'import "common/added.proto";\nenum Kind')
    project.write("third_party/common/kind.proto", kind.replace("Unit unit = 2;", "Unit unit = 2; Added added = 3;"))
    project.make()
    expect("an import that is added is made", project.headers("added.pb-c.h") != {})
    run(os.path.join(project.build, "second"))


def main():
    with tempfile.TemporaryDirectory() as work:
        project = Project(work)
        project.python()
        from google.protobuf import empty_pb2, timestamp_pb2
        from store.v1 import store_pb2
        os.environ["LD_LIBRARY_PATH"] = os.path.join(work, "usr", "lib")
        service = os.path.join(project.build, "service")
        run(os.path.join(project.build, "second"))
        check_server(service, store_pb2, empty_pb2, timestamp_pb2)
        check_client(service, store_pb2)
        check_changes(project)
        made = list(project.headers("kind.pb-c.h"))
        expect(f"what two targets import is made once {made}", len(made) == 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
