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
    "training": {"runtime", "proto", "net", "resolvers", "collective", "cluster", "training"},
}
PUBLIC_ONLY = {"tools", "examples"}  # these see include/muster/ and their own folder (and examples/serving)

# Of net's internal headers resolvers see look-ups, the HTTP and gRPC clients, credentials and base64.
RESOLVERS_SEE_OF_NET = re.compile(r"net/(dns|http_client|http|grpc|rpc|credentials|base64)\w*\.h")

# Public headers without a source of their name.
HEADER_LAYER = {"tls_authority": "net", "base": "runtime", "list": "runtime", "poller": "runtime", "collective": "collective", "strategy": "training",
                "backend": "collective", "gpu": "collective", "proto": "proto", "descriptors": "net"}

# Third-party headers and the files they are confined to.
THIRD_PARTY = [
    (r"event2/http|event2/keyvalq|event2/listener", r"net/http_server_libevent\.c"),
    (r"event2/", r"runtime/loop_libevent\w*\.[ch]|net/http_server_libevent\.c|examples/embed/embed_libevent\.c"),
    (r"uv\.h", r"examples/embed/embed_libuv\.c"),
    (r"jansson", r"runtime/json_jansson\.c"),
    (r"xxhash", r"runtime/hash_xxhash\.c"),
    (r"(google/)?protobuf-c/", r"proto/.*|\w+/\w+_(proto|service)\.[ch]"),
    (r"plugin\.pb-c\.h", r"tools/protoc_gen_muster/.*"),
    (r"proto/\w+\.(pb-c|muster)\.h", r"proto/.*|\w+/\w+_(proto|service)\.[ch]"),
    (r"nghttp2/", r"net/h2_session(_\w+)?\.[ch]"),
    (r"openssl/", r"net/tls_openssl(_\w+)?\.[ch]|net/tls_openssl\.h|net/crypto_openssl\.c"),
    (r"curl/", r"net/http_client_curl(_\w+)?\.[ch]"),
    (r"zlib", r"net/grpc_gzip\.c"),
    (r"ares", r"net/dns_cares\.c"),
    (r"yaml", r"resolvers/yaml_libyaml\.c"),
    (r"sqlite3", r"cluster/registry_(store|backup)_sqlite\.c"),
]

# Headers of the system that need a reason: threads, and the GPU's control thread; instructions of one processor.
SYSTEM_CONFINED = [
    (r"pthread\.h|threads\.h", r"runtime/(driver_seat|process_system|recorder_system)\.c|collective/(gpu_control|board_\w+)\.[ch]|tools/.*|examples/.*"),
    (r"\w*(mm|x86)intrin\.h|arm_neon\.h", r"collective/kernels_\w+\.[ch]"),
]

SYSTEM = set("""alloca assert complex ctype dirent dlfcn elf endian errno fcntl fenv float fnmatch ftw glob ifaddrs immintrin
inttypes iso646 libgen limits link locale malloc math netdb poll pwd regex sched search semaphore setjmp signal spawn stdalign
stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string strings syslog termios tgmath time ucontext unistd
wchar wctype pthread threads x86intrin nmmintrin smmintrin arm_neon arm_acle""".split())
SYSTEM_FOLDERS = ("sys/", "linux/", "net/if", "netinet/", "arpa/", "asm/", "sanitizer/")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def header_layer(stem):
    """The folder whose source carries the name of a public header."""
    if stem in HEADER_LAYER:
        return HEADER_LAYER[stem]
    for pattern in (f"{stem}.c", f"{stem}_*.c"):
        for folder in LAYERS:
            if any((ROOT / folder).glob(pattern)):
                return folder
    return None


def check_public(name, allowed):
    stem = name[len("muster/"):-2]
    if stem == "muster":
        return "the header of everything is for users"
    layer = header_layer(stem)
    if layer is None:  # declared ahead of its source: nobody can link against it yet
        return None
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
        own = [here / name, here / name.replace(".muster.h", ".proto"), ROOT / "examples/serving" / name]
        return None if any(place.exists() for place in own) else "is not public"
    target = name.split("/")[0]
    if target not in LAYERS:
        return "names no folder of the project"
    if target not in allowed:
        return f"belongs to {target}"
    if folder == "resolvers" and target == "net" and not RESOLVERS_SEE_OF_NET.fullmatch(name):
        return "is not among net's clients"
    return None


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


def main():
    wrong = []
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
