#!/usr/bin/env python3
"""What the layers call: libc's time, sockets, randomness, environment, threads and processes only in adapter files.

Also: every global symbol of our objects begins with muster_, the shared library exports nothing else, and another file than its own, of the
product, the tests or the examples, calls each function that it exports."""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(os.environ.get("MUSTER_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("MUSTER_BINARY_DIR", ROOT / "build-asan"))
LAYERS = "runtime proto net resolvers collective cluster params training".split()

NET_SOCKETS = r"net/(stream/(\w*socket\w*|net_system|dns_cares|ring(_host)?)|page/http_server_libevent)\.c"
SHARED_MEMORY = r"collective/board/(?!tensor)\w+\.c|runtime/system/host_\w+\.c"
BOARD_SOCKET = r"collective/board/socket\.c"
GPU_THREAD = r"collective/gpu/control\.c"

# The calls that are forbidden, and the adapter files where they are the point of the file.
RULES = [
    ("time", r"clock_gettime|clock_nanosleep|nanosleep|gettimeofday|time|usleep|sleep|timerfd_\w+|times|clock|alarm",
     {"runtime/loop/loop_libevent.c": "timerfd_create", "runtime/loop/loop_libevent_work.c": r"clock_gettime|timerfd_settime", "runtime/system/host_system.c": "clock_gettime",
      "params/server/seat/seat_system.c": "clock_gettime",
      "runtime/system/huge_memory.c": "clock_gettime",
      "runtime/system/recorder_system.c": "clock_gettime",
      "runtime/driver/driver_seat.c": "nanosleep", "runtime/system/process_system.c": "nanosleep"}),
    ("sockets", r"socket|socketpair|connect|bind|listen|accept4?|send|sendto|sendmsg|sendmmsg|recv|recvfrom|recvmsg|"
     r"recvmmsg|shutdown|[gs]etsockopt|getsockname|getpeername|getaddrinfo|getnameinfo|gethostby\w+|gethostname",
     {NET_SOCKETS: r".*", BOARD_SOCKET: r".*", "params/wire/host.c": r".*", "runtime/system/recorder_system.c": "gethostname"}),
    ("descriptors", r"read|write|readv|writev|pread|pwrite|open|openat|fopen|fdopen|creat|pipe2?|dup[23]?|close|fcntl|"
     r"ioctl|poll|ppoll|select|pselect|epoll_\w+|eventfd|signalfd|memfd_create|shm_open|mmap|rename|unlink|mkstemp|glob",
     {NET_SOCKETS: r".*", SHARED_MEMORY: r".*", GPU_THREAD: r".*",
      "runtime/loop/loop_libevent.c": r"close|read",  # of its timerfd
      "runtime/driver/driver_seat.c": r"poll",
      "runtime/loop/loop_libevent_beside.c": r"epoll_ctl",
      "runtime/loop/loop_libevent_fd.c": r"close|fcntl|epoll_\w+|pipe2",
      "runtime/loop/wake_eventfd.c": r"eventfd|read|write|close",
      "runtime/system/files_system.c": r"open|read|close|glob",
      "runtime/system/host_system.c": r"close",
      "runtime/system/process_system.c": r"open|read|close",  # names of threads
      "runtime/system/recorder_system.c": r"open|write|close|rename|unlink|poll",  # also in a handler of signals
      "runtime/system/host_command.c": r"pipe2|fcntl|read|close",
      "runtime/system/file_system.c": r"open|fcntl|pread|write|close|mmap|rename|unlink",  # large files, piece by piece
      "training/data/index.c": r"glob",  # files of a data set
      "training/data/plain.c": r"close|unlink",  # the file that a compressed one becomes
      "runtime/system/folder_system.c": r"open|close|unlink",  # to sync the names in a folder, and to delete files
      "cluster/store/store_sqlite.c": r"open|close",  # makes the file, for its owner alone
      "cluster/store/backup_sqlite.c": r"open|pread|write|close|unlink",  # files too large to be read whole
      "params/server/seat/seat_system.c": r"memfd_create|fcntl|close", "params/server/seat/share.c": r"close",
      "params/client/sight.c": r"fcntl|close", "params/client/stage.c": r"close",
      "params/server/links/stage.c": r"fcntl|close",
      "params/wire/host.c": r"close",
      "training/report.c": r"write|close|poll"}),  # the pipe that the launcher handed down
    ("randomness", r"getrandom|getentropy|rand|srand|rand_r|random|srandom|[delmnj]rand48|arc4random\w*|RAND_\w+",
     {"runtime/system/rng_system.c": "getrandom"}),
    ("environment", r"getenv|secure_getenv|setenv|unsetenv|putenv|environ",
     {"runtime/system/vars_system.c": "getenv|environ", "runtime/system/host_command.c": "environ"}),
    ("threads", r"pthread_\w+|thrd_\w+|mtx_\w+|cnd_\w+",
     {"runtime/driver/driver_seat.c": r".*", "runtime/system/recorder_system.c": r"pthread_mutex_\w+", "runtime/system/process_system.c": r"pthread_(once|atfork|mutex_\w+)", "runtime/system/host_place.c": r"pthread_(once|key|[gs]etspecific|mutex_(try|un)lock)\w*", "runtime/system/bell_system.c": r"pthread_(mutex|cond)_\w+", GPU_THREAD: r".*", SHARED_MEMORY: r"pthread_(mutex|key|[gs]etspecific)\w*",
      "params/server/seat/seat_system.c": r"pthread_mutex\w*",
      "params/server/seat/ahead_system.c": r"pthread_(cond|mutex)_\w+|pthread_(create|join|sigmask)",
      "runtime/system/aside_system.c": r"pthread_(create|join)",
      "runtime/system/file_limit_system.c": r"pthread_sigmask",
      "runtime/system/huge_memory.c": r"pthread_(cond|condattr|mutex)_\w+|pthread_(create|join|sigmask)",  # takes pages ahead
      "training/data/queue_system.c": r"pthread_(cond|mutex)_\w+|pthread_(create|join|sigmask)",  # readers of records
      "training/replicas/crew_system.c": r"pthread_(cond|mutex)_\w+|pthread_(create|join|sigmask)"}),
    ("processes", r"fork|vfork|clone|exec[lv]\w*|posix_spawn\w*|wait|waitpid|waitid|kill|system|popen|signal|sigaction|"
     r"syscall|prctl|process_vm_\w+|exit|_exit",
     {"runtime/system/memory_anchor.c": "clone|syscall|waitpid", "runtime/system/recorder_system.c": "sigaction", "runtime/system/stop_signals_system.c": "sigaction|kill", "runtime/loop/loop_libevent.c": "signal", "runtime/system/host_system.c": "syscall", "runtime/loop/time_slice.c": "syscall",
      "runtime/system/host_command.c": r"posix_spawn\w*|waitid|kill", SHARED_MEMORY: r".*"}),
    ("limits", r"[gs]etrlimit(64)?|prlimit(64)?", {"runtime/value/errno_text.c": "getrlimit", SHARED_MEMORY: "getrlimit"}),
    ("the heap", r"malloc|calloc|realloc|free|strdup|strndup|asprintf|aligned_alloc|posix_memalign|memalign",
     {"runtime/value/mem.c": "realloc|free"}),
]
# Libraries that hand out or take memory of the C library's heap.
HEAP_OF_LIBRARIES = r"net/tls/(crypto_)?openssl\.c|net/stream/dns_cares\.c|net/h2/session\.c|net/http/\w+\.c|net/page/\w+\.c|cluster/store/store_sqlite\.c"


CALLED_BY_MACROS = {"muster_assert_failed"}  # of public headers


def symbols_of(paths, *flags):
    """Of each object the names that it calls, and those that it defines: one nm reads them all."""
    found = {path: (set(), set()) for path in paths}
    output = subprocess.run(["nm", "-A", "-g", *flags, *paths], check=True, capture_output=True, text=True).stdout
    for line in output.splitlines():
        file, _, rest = line.partition(":")
        kind, name = rest.split()[-2:]
        name = name.split("@")[0]
        calls, defines = found[pathlib.Path(file)]
        if kind in "Uwv":
            calls.add(re.sub(r"^__(\w+)_chk$", r"\1", name))
        elif kind in "TDBRVWi":
            defines.add(name)
    return found


def is_allowed(source, name, adapters):
    return any(re.fullmatch(files, source) and re.fullmatch(names, name) for files, names in adapters.items())


def check_object(source, calls, defines):
    for name in sorted(calls):
        for topic, names, adapters in RULES:
            if not re.fullmatch(names, name) or is_allowed(source, name, adapters):
                continue
            if topic == "the heap" and re.fullmatch(HEAP_OF_LIBRARIES, source):
                continue
            yield f"{source} calls {name}: {topic} is for its adapter"
    for name in sorted(defines):
        if not re.match(r"muster_|__(asan|odr_asan|ubsan|tsan|gcov|llvm|start|stop)|_?_sancov", name):
            yield f"{source} defines {name}: global names begin with muster_"


def check_uses(names):
    """A public function that nothing calls has no test either."""
    uses = dict.fromkeys(names, 0)
    for folder in (*LAYERS, "tools", "examples", "tests"):
        for path in (ROOT / folder).rglob("*.[ch]"):
            for word in set(re.findall(r"\bmuster_\w+", path.read_text(encoding="utf-8"))) & uses.keys():
                uses[word] += 1
    for name in sorted(name for name, count in uses.items() if count < 2 and name not in CALLED_BY_MACROS):
        yield f"{name} is exported and nothing calls it: test it, or delete it"


def check_shared_library(path):
    exported = symbols_of([path], "-D")[path][1]
    yield from check_uses(name for name in exported if name.startswith("muster_"))
    for name in sorted(exported):
        if not re.match(r"muster_|google__protobuf__|__(asan|odr_asan|ubsan|tsan)|_(init|fini|edata|end)$|__bss_start$|.*gcov", name):
            yield f"{path.name} exports {name}"


def main():
    wrong = []
    count = 0
    for layer in LAYERS:
        folder = BUILD / "CMakeFiles" / f"muster_{layer}.dir" / layer
        objects = [path for path in sorted(folder.rglob("*.c.o"))
                   if (ROOT / layer / path.relative_to(folder).as_posix()[:-2]).exists()]  # others are left over from a source that is gone
        count += len(objects)
        for path, (calls, defines) in symbols_of(objects).items() if objects else ():
            wrong.extend(check_object(f"{layer}/{path.relative_to(folder).as_posix()[:-2]}", calls, defines))
    library = BUILD / "lib" / "libmuster.so"
    if library.exists():
        wrong.extend(check_shared_library(library))
    if count == 0:
        print("no objects: build first")
        return 77
    print("\n".join(wrong))
    print(f"{count} objects, {len(wrong)} findings")
    return 1 if wrong else 0


sys.exit(main())
