/* muster bench publish: one publisher, readers in processes of their own, versions that change a little or
 * wholly, with and without kills. Each reader has a host key of its own, so that it fetches along the trees. */
#include "bench/publish.h"

#include "bench/bench.h"
#include "common/command.h"
#include "common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <muster/registry_server.h>
#include <muster/stream.h>

#define FILES_BASE       64u
#define FILES_PER_READER 8u
#define PATIENCE_NS      (60 * MUSTER_NS_PER_S)
#define LOOK_NS          (1 * MUSTER_NS_PER_MS)
#define LINK_MBIT_MAX    1e6

static bool address_check(const char *text, struct muster_error *ret_error)
{
    char with_port[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_address address;

    snprintf(with_port, sizeof(with_port), "%.128s:0", text);
    if (muster_address_parse(with_port, &address, ret_error) == MUSTER_OK)
        return true;
    muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "must be an IP address, got \"%.80s\"",
                     text);
    return false;
}

static bool namespace_check(const char *text, struct muster_error *ret_error)
{
    if (access(text, R_OK) == 0)
        return true;
    muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                     "must be the file of a network namespace, got \"%.80s\": %s", text,
                     strerror(errno));
    return false;
}

static const struct muster_option rows[] = {
    {.name = "readers",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct publish_settings, readers),
     .fallback = "8",
     .min = 1,
     .max = 1000,
     .help = "Processes that read, each as if on a host of its own."},
    {.name = "bytes",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct publish_settings, bytes),
     .fallback = "64M",
     .unit = "bytes",
     .min = 4,
     .max = (uint64_t)16 << 30,
     .help = "Bytes of a version (f32)."},
    {.name = "changed",
     .kind = MUSTER_OPTION_REAL,
     .offset = offsetof(struct publish_settings, changed),
     .fallback = "100",
     .unit = "percent",
     .help = "Elements that each version changes."},
    {.name = "versions",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct publish_settings, versions),
     .fallback = "5",
     .min = 1,
     .max = 100000,
     .help = "Versions that are measured; with --kills at least as many as kills."},
    {.name = "kills",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct publish_settings, kills),
     .fallback = "0",
     .max = 100000,
     .help = "SIGKILLs of a reader in the middle of a version; it is started again."},
    {.name = "address",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct publish_settings, address),
     .fallback = "127.0.0.1",
     .check = address_check,
     .value = "ADDRESS",
     .help =
         "Where the publisher and its registry listen; readers listen where they reach it from."},
    {.name = "namespace",
     .kind = MUSTER_OPTION_TEXTS,
     .offset = offsetof(struct publish_settings, namespaces),
     .check = namespace_check,
     .value = "FILE",
     .help =
         "A network namespace (/run/netns/NAME) for readers, which are spread over all that are "
         "given."},
    {.name = "link-mbit",
     .kind = MUSTER_OPTION_REAL,
     .offset = offsetof(struct publish_settings, link_mbit),
     .fallback = "0",
     .unit = "Mbit/s",
     .help = "Speed of each host's link, for the bound; 0: that of one stream of this machine."},
    {.name = "seed",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct publish_settings, seed),
     .fallback = "1",
     .min = 1,
     .help = "Of the changes and the kills."},
    {.name = "json",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct publish_settings, is_json),
     .help = "The result as JSON."},
};

const struct muster_options bench_publish_options = {
    .command = "muster bench publish",
    .usage = "[--readers N] [--bytes B] [--changed PERCENT] [--kills K]",
    .about = "Publish versions to many readers, and check that each reader shows them whole and in "
             "order.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

static uint64_t publish_draw(struct bench_publish *bench, uint64_t bound)
{
    bench->random ^= bench->random << 13;
    bench->random ^= bench->random >> 7;
    bench->random ^= bench->random << 17;
    return bench->random % bound;
}

/* --- The readers --- */

/* In the child. */
static bool namespace_enter(const struct bench_publish *bench, uint32_t place)
{
    const struct muster_option_texts *namespaces = &bench->settings->namespaces;
    const char *path;
    int fd;
    bool is_there;

    if (namespaces->count == 0)
        return true;
    path = namespaces->values[place % namespaces->count];
    fd = open(path, O_RDONLY | O_CLOEXEC);
    is_there = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
    if (!is_there)
        perror(path);
    return is_there;
}

static bool reader_spawn(struct bench_publish *bench, uint32_t place)
{
    char fd[16], readers[16], number[16];

    snprintf(fd, sizeof(fd), "%d", bench->slots_fd);
    snprintf(readers, sizeof(readers), "%" PRIu64, bench->settings->readers);
    snprintf(number, sizeof(number), "%" PRIu32, place);
    atomic_store(&bench->slots[place].shown, 0);
    atomic_store(&bench->slots[place].checked, 0);
    fflush(NULL);
    bench->pids[place] = fork();
    if (bench->pids[place] != 0)
        return bench->pids[place] > 0;
    if (!namespace_enter(bench, place))
        _exit(EXIT_OTHER);
    execl("/proc/self/exe", "muster", "bench", "publish-reader", bench->endpoint, fd, readers,
          number, (char *)NULL);
    _exit(EXIT_OTHER);
}

static void reader_kill(struct bench_publish *bench, uint32_t place)
{
    if (bench->pids[place] <= 0)
        return;
    (void)kill(bench->pids[place], SIGKILL);
    (void)waitpid(bench->pids[place], NULL, 0);
    bench->pids[place] = 0;
}

static bool slots_open(struct bench_publish *bench)
{
    size_t bytes = bench->settings->readers * sizeof(struct bench_publish_slot);

    bench->slots_fd = memfd_create("muster-bench-publish", 0); /* the readers inherit it */
    if (bench->slots_fd < 0 || ftruncate(bench->slots_fd, (off_t)bytes) != 0)
        return false;
    bench->slots = bench_publish_slots(bench->slots_fd, (uint32_t)bench->settings->readers);
    return bench->slots != NULL;
}

/* --- The loop --- */

static void on_look(struct muster_timer *timer)
{
    struct bench_publish *bench = timer->data;

    muster_timer_start(timer, bench->env->loop, muster_loop_after_ns(bench->env->loop, LOOK_NS));
}

typedef bool publish_condition_fn(struct bench_publish *bench);

static bool publish_await(struct bench_publish *bench, publish_condition_fn *holds,
                          const char *what)
{
    uint64_t deadline_ns = muster_loop_after_ns(bench->env->loop, PATIENCE_NS);

    while (!holds(bench)) {
        if (muster_loop_now_ns(bench->env->loop) > deadline_ns) {
            fprintf(stderr, "muster bench publish: %s took more than a minute\n", what);
            return false;
        }
        muster_loop_turn(bench->env->loop, UINT64_MAX);
    }
    return true;
}

static bool is_opened(struct bench_publish *bench)
{
    return bench->is_opened;
}

static bool is_put(struct bench_publish *bench)
{
    return bench->is_done;
}

static bool is_closed(struct bench_publish *bench)
{
    return bench->is_closed;
}

static bool are_connected(struct bench_publish *bench)
{
    struct muster_publication_stats stats;

    muster_publication_stats(bench->publication, &stats);
    return stats.readers == bench->settings->readers;
}

/* All readers, also those that were started again, have looked at the newest version. */
static bool are_checked(struct bench_publish *bench)
{
    for (uint64_t i = 0; i < bench->settings->readers; i++) {
        if (atomic_load(&bench->slots[i].checked) < bench->version)
            return false;
    }
    return are_connected(bench);
}

/* --- Versions --- */

static void weights_change(struct bench_publish *bench, double percent)
{
    uint64_t changes = (uint64_t)((double)bench->count * percent / 100);

    if (changes >= bench->count) {
        for (uint64_t i = 0; i < bench->count; i++)
            bench->weights[i] = (float)publish_draw(bench, UINT64_C(1) << 24);
    } else {
        for (uint64_t i = 0; i < changes; i++)
            bench->weights[publish_draw(bench, bench->count)] =
                (float)publish_draw(bench, UINT64_C(1) << 24);
    }
    muster_hash128(bench->weights, (size_t)bench->count * sizeof(float), bench->digest);
}

static void on_put(struct muster_publication_op *op, enum muster_rc rc)
{
    struct bench_publish *bench = op->data;

    bench->is_done = true;
    bench->rc = rc;
}

static void on_kill(struct muster_timer *timer)
{
    struct bench_publish *bench = timer->data;

    reader_kill(bench, (uint32_t)publish_draw(bench, bench->settings->readers));
    bench->kill_count++;
}

static uint64_t bytes_received(const struct bench_publish *bench)
{
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < bench->settings->readers; i++)
        bytes += atomic_load(&bench->slots[i].bytes_received);
    return bytes;
}

/* Readers that the publisher has heard of show the version. */
static void stale_count(struct bench_publish *bench)
{
    uint32_t shown = 0;

    for (uint64_t i = 0; i < bench->settings->readers; i++)
        shown += atomic_load(&bench->slots[i].shown) >= bench->version;
    if (shown < bench->op.readers)
        bench->stale += bench->op.readers - shown;
}

/* A kill strikes at an even phase of the time that versions take. */
static bool version_put(struct bench_publish *bench, bool is_killed, double *ret_ms)
{
    const struct muster_named_tensor tensors[] = {
        {.name = "weights", .dtype = MUSTER_F32, .count = bench->count, .data = bench->weights},
        {.name = "digest",
         .dtype = MUSTER_U8,
         .count = sizeof(bench->digest),
         .data = bench->digest},
    };
    struct muster_loop *loop = bench->env->loop;
    uint64_t begin_ns = muster_loop_clock_ns(loop);
    const struct muster_publication_put put = {.tensors = tensors,
                                               .count = 2,
                                               .wait_readers = MUSTER_PUBLICATION_WAIT_FOR_ALL,
                                               .deadline_ns = begin_ns + PATIENCE_NS};
    double usual_ms = bench_samples_quantile(&bench->all_ms, 0.5);

    bench->is_done = false;
    bench->op.data = bench;
    if (is_killed)
        muster_timer_start(&bench->kill, loop,
                           begin_ns + publish_draw(bench, (uint64_t)(usual_ms * 1e6) + 1));
    bench->rc = muster_publication_put_start(&bench->op, bench->publication, &put, on_put);
    if (bench->rc == MUSTER_OK && !publish_await(bench, is_put, "a version"))
        return false;
    *ret_ms = (double)(muster_loop_clock_ns(loop) - begin_ns) / 1e6;
    muster_timer_stop(&bench->kill);
    if (bench->rc != MUSTER_OK) {
        fprintf(stderr, "muster bench publish: %s\n", bench->op.error.text);
        return false;
    }
    bench->version = bench->op.version;
    stale_count(bench);
    return true;
}

static bool readers_revive(struct bench_publish *bench)
{
    for (uint32_t i = 0; i < bench->settings->readers; i++) {
        if (bench->pids[i] == 0 && !reader_spawn(bench, i))
            return false;
    }
    return publish_await(bench, are_checked, "the check of a version");
}

static bool versions_measure(struct bench_publish *bench)
{
    const struct publish_settings *settings = bench->settings;
    double ms = 0;

    weights_change(bench, 100);
    if (!version_put(bench, false, &ms) ||
        !readers_revive(bench)) /* the first one is whole anyway */
        return false;
    for (uint64_t i = 0; i < settings->versions; i++) {
        uint64_t before = bytes_received(bench);

        weights_change(bench, settings->changed);
        if (!version_put(bench, false, &ms) || !readers_revive(bench))
            return false;
        bench_samples_add(&bench->all_ms, ms);
        bench_samples_add(&bench->wire_bytes, (double)(bytes_received(bench) - before));
    }
    while (bench->kill_count < settings->kills) {
        weights_change(bench, settings->changed);
        if (!version_put(bench, true, &ms) || !readers_revive(bench))
            return false;
        bench_samples_add(&bench->killed_ms, ms);
    }
    return true;
}

/* --- The course --- */

static void on_publication(struct muster_publication *publication, enum muster_rc rc)
{
    struct bench_publish *bench = muster_publication_data(publication);

    bench->is_opened = true;
    bench->rc = rc;
}

static enum muster_rc publication_open(struct bench_publish *bench, struct muster_error *ret_error)
{
    const struct muster_registry_store_options store = {.path = NULL};
    char any_port[MUSTER_ADDRESS_TEXT_BYTES];
    const struct muster_registry_server_options server = {.listen = any_port};
    struct muster_address listen;
    const struct muster_publication_options options = {
        .name = BENCH_PUBLISH_NAME,
        .job = "bench",
        .registry = bench->endpoint,
        .listen = &listen,
        .deadline_ns = muster_loop_after_ns(bench->env->loop, PATIENCE_NS),
        .data = bench};
    enum muster_rc rc =
        muster_registry_store_open(bench->env->mem, &store, &bench->store, ret_error);

    snprintf(any_port, sizeof(any_port), "%s:0", bench->settings->address);
    if (rc == MUSTER_OK)
        rc = muster_registry_server_open(bench->env, bench->store, &server, &bench->registry,
                                         ret_error);
    if (rc != MUSTER_OK)
        return rc;
    muster_address_format(muster_registry_server_address(bench->registry), bench->endpoint);
    rc = muster_address_parse(any_port, &listen, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_publication_open(bench->env, &options, on_publication, &bench->publication,
                                     ret_error);
    return rc;
}

static int publish_measure(struct bench_publish *bench)
{
    bool is_good = publish_await(bench, is_opened, "the opening") && bench->rc == MUSTER_OK;

    for (uint32_t i = 0; i < bench->settings->readers && is_good; i++)
        is_good = reader_spawn(bench, i);
    is_good = is_good && publish_await(bench, are_connected, "the start of the readers") &&
              versions_measure(bench);
    if (is_good)
        bench_publish_print(bench);
    for (uint32_t i = 0; i < bench->settings->readers; i++)
        reader_kill(bench, i);
    return is_good && bench->stale == 0 && output_flush() ? EXIT_OK : EXIT_OTHER;
}

static void on_closed(struct muster_publication *publication, enum muster_rc rc)
{
    struct bench_publish *bench = muster_publication_data(publication);

    (void)rc;
    bench->is_closed = true;
}

static void on_registry_closed(struct muster_registry_server *server)
{
    struct bench_publish *bench = muster_registry_server_data(server);

    bench->is_closed = true;
}

static void publish_close(struct bench_publish *bench)
{
    bool is_good = true;

    muster_timer_stop(&bench->kill);
    if (bench->publication != NULL) {
        muster_publication_close(bench->publication, on_closed);
        is_good = publish_await(bench, is_closed, "the closing");
    }
    bench->is_closed = false;
    if (bench->registry != NULL && is_good) {
        muster_registry_server_set_data(bench->registry, bench);
        muster_registry_server_close(bench->registry, 0, on_registry_closed);
        is_good = publish_await(bench, is_closed, "the closing of the registry");
    }
    muster_timer_stop(&bench->look);
    if (!is_good)
        return; /* the memory is in use, and goes with the process */
    muster_loop_turn_closing(bench->env->loop);
    muster_registry_store_close(bench->store);
    muster_net_system_close(bench->env->net);
    muster_env_system_close(bench->env);
}

static int publish_run(struct bench_publish *bench)
{
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc;
    int code;

    muster_timer_init(&bench->look, on_look, bench);
    muster_timer_init(&bench->kill, on_kill, bench);
    on_look(&bench->look);
    rc = publication_open(bench, &error);
    code = rc == MUSTER_OK ? publish_measure(bench) : command_fail("bench publish", &error);
    publish_close(bench);
    return code;
}

int bench_publish(int argc, char **argv)
{
    struct publish_settings settings = {.readers = 0};
    struct bench_publish bench = {.settings = &settings, .slots_fd = -1};
    int code = EXIT_OK;

    if (!command_parse_all(&bench_publish_options, argc, argv, &settings, &code))
        return code;
    if (!(settings.changed >= 0 && settings.changed <= 100))
        return command_refuse(bench_publish_options.command,
                              "--changed must be from 0 to 100, got %g", settings.changed);
    if (!(settings.link_mbit >= 0 && settings.link_mbit <= LINK_MBIT_MAX))
        return command_refuse(bench_publish_options.command,
                              "--link-mbit must be from 0 to %g, got %g", LINK_MBIT_MAX,
                              settings.link_mbit);
    if (!command_has_files(bench_publish_options.command,
                           FILES_BASE + FILES_PER_READER * settings.readers))
        return EXIT_OTHER;
    bench.count = settings.bytes / sizeof(float);
    bench.random = settings.seed;
    bench.weights = calloc(bench.count, sizeof(float));
    bench.pids = calloc(settings.readers, sizeof(pid_t));
    if (bench.weights == NULL || bench.pids == NULL || !slots_open(&bench) ||
        muster_env_system_open(NULL, &bench.env) != MUSTER_OK ||
        muster_net_system_open(bench.env, &bench.env->net) != MUSTER_OK) {
        fprintf(stderr, "muster bench publish: no memory\n");
        return EXIT_OTHER;
    }
    code = publish_run(&bench);
    free(bench.weights);
    free(bench.pids);
    free(bench.all_ms.at);
    free(bench.killed_ms.at);
    free(bench.wire_bytes.at);
    return code;
}
