#!/usr/bin/env python3
"""Who may include whom: every #include against the table of layers, and third-party headers in named files only."""
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(os.environ.get("MUSTER_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))

# Folders whose headers (public and internal) a folder may include.
LAYERS = {
    "runtime": {"runtime"},
    "proto": {"runtime", "proto"},
    "net": {"runtime", "proto", "net"},
    "resolvers": {"runtime", "proto", "net", "resolvers"},
    "collective": {"runtime", "proto", "net", "collective"},
    "cluster": {"runtime", "proto", "net", "resolvers", "collective", "cluster"},
    "params": {"runtime", "proto", "net", "collective", "cluster", "params"},
    "training": {"runtime", "proto", "net", "resolvers", "collective", "cluster", "params", "training"},
}
PUBLIC_ONLY = {"tools", "examples"}  # these see include/muster/ and their own folder (and examples/serving)

# The folders inside a folder, lowest first: a line may include itself and the lines above that it names.
INNER = {
    "runtime/value": "",
    "runtime/options": "value",
    "runtime/report": "value",
    "runtime/loop": "value report",
    "runtime/system": "value report loop",
    "runtime/driver": "value report loop system",
    "net/stream": "",
    "net/tls": "stream",
    "net/http": "stream tls",
    "net/auth": "stream tls http",
    "net/h2": "stream tls",
    "net/grpc": "stream tls h2",
    "net/grpc/client": "stream tls h2 grpc",
    "net/grpc/server": "stream tls h2 grpc",
    "net/grpc/services": "stream tls h2 grpc grpc/client grpc/server",
    "net/link": "stream tls grpc/server",
    "net/page": "stream",
    "resolvers/spec": "",
    "resolvers/core": "spec",
    "resolvers/platform": "spec core",
    "resolvers/platform/gce": "spec core platform",
    "resolvers/platform/kubernetes": "spec core platform",
    "resolvers/platform/launcher": "spec core platform",
    "resolvers/platform/plain": "spec core platform",
    "resolvers/platform/slurm": "spec core platform",
    "resolvers/platform/tpu": "spec core platform platform/gce",
    "resolvers/open": "spec core platform",
    "collective/board": "",
    "collective/kernel": "",
    "collective/plan": "view",
    "collective/view": "",
    "collective/wire": "view",
    "collective/group/run": "kernel plan view wire",
    "collective/group": "board kernel plan view wire group/run",
    "collective/group/shm": "board kernel plan view wire group/run group",
    "collective/gpu": "view plan group/run group",
    "cluster/service": "",
    "cluster/store": "",
    "cluster/client": "",
    "cluster/registry": "service store",
    "cluster/coordination": "service store",
    "cluster/membership": "",
    "cluster/node": "membership client",
    "cluster/server": "service coordination",
    "params/wire": "",
    "params/map": "wire",
    "params/publication": "wire",
    "params/store": "wire",
    "params/snapshot": "store wire",
    "params/client": "snapshot store wire",
    "params/server/seat": "store wire",
    "params/server/core": "store wire server/seat",
    "params/server/followers": "map store wire server/seat server/core",
    "params/server/state": "snapshot store wire server/seat server/core server/followers",
    "params/server/leaders": "store wire server/seat server/core server/followers server/state",
    "params/server/links": "store wire server/seat server/core server/followers server/state server/leaders",
    "params/server/registry": "map store wire server/seat server/core server/followers server/state server/leaders server/links",
    "params/server/services": "client store wire server/seat server/core server/followers server/state server/leaders server/links server/registry",
    "params/server": "client map snapshot store wire server/seat server/core server/followers server/state server/leaders server/links server/registry server/services",
    "training/checkpoint": "",
    "training/data": "",
    "training/input": "",
    "training/micro": "",
    "training/replicas": "",
    "training/role": "",
    "tools/common": "",
    "tools/resolve": "common",
    "tools/jobs": "common",
    "tools/trace": "common",
    "tools/checkpoint": "common",
    "tools/serve": "common resolve",
    "tools/params": "common serve",
    "tools/bench": "common serve params",
    "tools/run/state": "common",
    "tools/run/output": "common run/state",
    "tools/run/options": "common resolve run/state run/output",
    "tools/run/registry": "common jobs run/state run/output",
    "tools/run/claim": "common run/state run/output run/registry",
    "tools/run/report": "common jobs serve run/state run/output run/registry",
    "tools/run/resume": "common run/state run/output run/registry run/report",
    "tools/run/task": "common run/state run/output run/registry run/claim run/report run/resume",
    "tools/run": "common run/state run/output run/options run/registry run/claim run/report run/resume run/task",
    "tools/table": "common checkpoint resolve jobs trace serve params bench run run/options",
}

# Internal headers of the library that a file of the command includes: the model plays the library's own plans.
TOOLS_SEE_INTERNAL = {"tools/bench/model.c": "collective/plan/steps.h",
                      "tools/bench/params_proto.c": "proto/params.muster.h",
                      "tools/bench/publish_result.c": "params/publication/model.h",
                      "tools/params/cut_files.c": "params/snapshot/snapshot.h"}

# Resolvers may include these internal headers of net: look-ups, the HTTP and gRPC clients, credentials and base64.
RESOLVERS_SEE_OF_NET = re.compile(r"net/(stream/(dns|base64)\w*|http/\w+|auth/\w+|grpc/\w+|grpc/client/\w+)\.h")

# The folder of each public header.
PUBLIC = {
    "runtime": "base command env hash incarnation json list log loop mem metrics options runtime status trace",
    "proto": "proto",
    "net": "address authorization channel credentials http op_id rpc stream stub tls",
    "resolvers": "cluster_spec platforms resolver tpu",
    "collective": "backend collective gpu static_group view",
    "cluster": "coordination_server locks registry registry_server server server_client server_def tpu_coordinator",
    "params": "params params_drain params_inspect params_server publication",
    "training": "checkpoint dataset strategy_checkpoint strategy_exchange strategy_preemption input micro_batches replica replicas slices strategy strategy_blob strategy_request strategy_role",
}

# Third-party headers and the files they are confined to.
THIRD_PARTY = [
    (r"event2/http|event2/keyvalq|event2/listener", r"net/page/http_server_libevent\.c"),
    (r"event2/", r"runtime/loop/loop_libevent\w*\.[ch]|net/page/http_server_libevent\.c|examples/embed/embed_libevent\.c"),
    (r"uv\.h", r"examples/embed/embed_libuv\.c"),
    (r"jansson", r"runtime/value/json_jansson\.c"),
    (r"xxhash|xxh_x86dispatch", r"runtime/value/hash_xxhash\.c"),
    (r"(google/)?protobuf-c/", r"proto/.*|[\w/]+_(proto|service)\.[ch]"),
    (r"plugin\.pb-c\.h", r"tools/protoc_gen_muster/.*"),
    (r"proto/\w+\.(pb-c|muster)\.h", r"proto/.*|[\w/]+_(proto|service)\.[ch]"),
    (r"nghttp2/", r"net/h2/(h2_)?session(_\w+)?\.[ch]"),
    (r"openssl/", r"net/tls/openssl(_\w+)?\.[ch]|net/tls/crypto_openssl\.c"),
    (r"curl/", r"net/http/client_curl(_\w+)?\.[ch]"),
    (r"zlib", r"net/grpc/gzip\.c|training/data/inflate_zlib\.c"),
    (r"zstd", r"training/data/inflate_zstd\.c"),
    (r"ares", r"net/stream/dns_cares\.c"),
    (r"yaml", r"resolvers/platform/kubernetes/yaml_libyaml\.c"),
    (r"sqlite3", r"cluster/store/(store|backup)_sqlite\.c"),
]

# Headers of the system that need a reason: threads, and the GPU's control thread; instructions of one processor.
SYSTEM_CONFINED = [
    (r"pthread\.h|threads\.h", r"runtime/(driver/driver_seat|system/((aside|bell|file_limit)_system|huge_memory)|system/process_system|system/recorder_system|system/host_place)\.[ch]|collective/(gpu/control|board/\w+)\.[ch]|params/server/seat/(seat|ahead)_system\.c|training/data/queue_system\.c|training/replicas/crew_system\.c|tools/.*|examples/.*"),
    (r"\w*(mm|x86)intrin\.h|arm_neon\.h", r"(collective/kernel/kernels|params/publication/delta)_\w+\.[ch]"),
]

SYSTEM = set("""alloca assert complex ctype dirent dlfcn elf endian errno fcntl fenv float fnmatch ftw glob ifaddrs immintrin
inttypes iso646 libgen limits link locale malloc math netdb poll pwd regex sched search semaphore setjmp signal spawn stdalign
stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string strings syslog termios tgmath time ucontext unistd
wchar wctype pthread threads x86intrin nmmintrin smmintrin arm_neon arm_acle""".split())
SYSTEM_FOLDERS = ("sys/", "linux/", "net/if", "netinet/", "arpa/", "asm/", "sanitizer/")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def header_layer(stem):
    """The folder that a public header belongs to."""
    return next((folder for folder, stems in PUBLIC.items() if stem in stems.split()), None)


def check_public(name, allowed):
    stem = name[len("muster/"):-2]
    if stem == "muster":
        return "the header of everything is for users"
    layer = header_layer(stem)
    if layer is None:
        return "is not in PUBLIC: add it to its folder there"
    return None if layer in allowed else f"belongs to {layer}"


def check_third_party(path, name):
    for pattern, files in THIRD_PARTY:
        if re.match(pattern, name):
            return None if re.fullmatch(files, path) else f"is confined to {files}"
    return False


def check_system(path, name):
    for pattern, files in SYSTEM_CONFINED:
        if re.fullmatch(pattern, name):
            return None if re.fullmatch(files, path) else f"is confined to {files}"
    if name.startswith(SYSTEM_FOLDERS) or name[:-2] in SYSTEM:
        return None
    return "is in no table of this check"


def check_project(path, folder, name):
    allowed = LAYERS.get(folder, set())
    if folder in PUBLIC_ONLY:
        here = (ROOT / path).parent
        own = [here / name, here / name.replace(".muster.h", ".proto"), ROOT / "examples/serving" / name, ROOT / "tools" / name]
        if TOOLS_SEE_INTERNAL.get(path) == name:
            return None
        if not any(place.exists() for place in own):
            return "is not public"
        return check_inner(path, "tools/" + name) if folder == "tools" and "/" in name else None
    target = name.split("/")[0]
    if target not in LAYERS:
        return "names no folder of the project"
    if target not in allowed:
        return f"belongs to {target}"
    if folder == "resolvers" and target == "net" and not RESOLVERS_SEE_OF_NET.fullmatch(name):
        return "is not among net's clients"
    return check_inner(path, name) if target == folder else None


def check_inner(path, name):
    """The order of the folders inside a folder."""
    here, there = (each.rpartition("/")[0] for each in (path, name))
    if here == there or here not in INNER:
        return None
    if there not in INNER:
        return f"is in {there}, which INNER does not name"
    if there.split("/", 1)[1] in INNER[here].split():
        return None
    return f"stands above {here}"


def check(path, folder, quote, name):
    """What is wrong with one include, or None."""
    allowed = set(LAYERS) if folder in PUBLIC_ONLY else LAYERS[folder]
    third_party = check_third_party(path, name)
    if third_party is not False:
        return third_party
    if name.startswith("muster/"):
        return None if folder in PUBLIC_ONLY else check_public(name, allowed)
    if quote == '"':
        return check_project(path, folder, name)
    return check_system(path, name)


def public_folder(path):
    """A public header obeys the rule of its layer; one that is ahead of its source may see all public ones."""
    return header_layer(path.stem) or "tools"


def left_out(headers, everything):
    """Public headers that muster.h does not include."""
    return [f"include/muster/muster.h does not include <muster/{name}>" for name in headers if f"#include <muster/{name}>" not in everything]


def main():
    public = sorted(path.name for path in (ROOT / "include/muster").glob("*.h") if path.stem != "muster")
    assert left_out(["a.h", "b.h"], "#include <muster/a.h>\n") == ["include/muster/muster.h does not include <muster/b.h>"]
    wrong = left_out(public, (ROOT / "include/muster/muster.h").read_text())
    count = 0
    files = [p for folder in [*LAYERS, *PUBLIC_ONLY] for p in sorted((ROOT / folder).rglob("*.[ch]"))]
    files += [p for p in sorted((ROOT / "include/muster").glob("*.h")) if p.stem != "muster"]
    for path in files:
        relative = path.relative_to(ROOT).as_posix()
        folder = public_folder(path) if relative.startswith("include/") else relative.split("/")[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            count += 1
            reason = check(relative, folder, *match.groups())
            if reason is not None:
                wrong.append(f"{relative}:{number}: {match.group(2)} {reason}")
    print("\n".join(wrong))
    print(f"{count} includes of {len(files)} files, {len(wrong)} against the rule")
    return 1 if wrong or count == 0 else 0


sys.exit(main())
