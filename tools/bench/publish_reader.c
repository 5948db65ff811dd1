/* A reader of `muster bench publish`: a process of its own, which is killed. */
#include "bench/publish.h"

#include "bench/bench.h"
#include "common/command.h"

#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <muster/stream.h>

struct bench_publish_slot *bench_publish_slots(int fd, uint32_t readers)
{
    void *slots = mmap(NULL, readers * sizeof(struct bench_publish_slot), PROT_READ | PROT_WRITE,
                       MAP_SHARED, fd, 0);

    return slots != MAP_FAILED ? slots : NULL;
}

struct publish_reader {
    struct muster_env *env;
    struct muster_reader *reader;
    struct bench_publish_slot *slot;
    uint64_t received_before; /* by earlier processes of this place */
    struct muster_task check;
};

/* The second tensor is the digest of the first one. */
static void on_check(struct muster_task *task)
{
    struct publish_reader *publish = task->data;
    const struct muster_version *version = muster_reader_current(publish->reader);
    struct muster_reader_stats stats;
    uint8_t digest[MUSTER_HASH128_BYTES];

    muster_hash128(version->tensors[0].data, (size_t)version->tensors[0].count * sizeof(float),
                   digest);
    if (version->count != 2 || memcmp(digest, version->tensors[1].data, sizeof(digest)) != 0)
        atomic_fetch_add(&publish->slot->torn, 1);
    muster_reader_stats(publish->reader, &stats);
    atomic_store(&publish->slot->bytes_received, publish->received_before + stats.bytes_received);
    atomic_store(&publish->slot->checked, version->number);
    muster_reader_release(publish->reader, version);
}

static void on_version(struct muster_reader *reader)
{
    struct publish_reader *publish = muster_reader_data(reader);
    const struct muster_version *version = muster_reader_current(reader);

    if (version->number < atomic_load(&publish->slot->shown))
        atomic_fetch_add(&publish->slot->stale, 1);
    atomic_store(&publish->slot->shown, version->number);
    muster_reader_release(reader, version);
    muster_task_post(&publish->check, publish->env->loop);
}

/* The address of this process on its way to the registry. */
static bool own_host(const struct muster_endpoint *registry, char ret_host[MUSTER_HOST_TEXT_BYTES])
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_DGRAM};
    struct sockaddr_storage own;
    socklen_t bytes = sizeof(own);
    struct addrinfo *found = NULL;
    bool is_known;
    int fd;

    if (getaddrinfo(registry->host, "9", &hints, &found) != 0)
        return false;
    fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    is_known = fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
               getsockname(fd, (struct sockaddr *)&own, &bytes) == 0 &&
               getnameinfo((struct sockaddr *)&own, bytes, ret_host, MUSTER_HOST_TEXT_BYTES, NULL,
                           0, NI_NUMERICHOST) == 0;
    freeaddrinfo(found);
    if (fd >= 0)
        close(fd);
    return is_known;
}

/* A free port there. */
static enum muster_rc listen_choose(const char *registry, struct muster_address *ret_listen,
                                    struct muster_error *ret_error)
{
    char host[MUSTER_HOST_TEXT_BYTES], text[MUSTER_HOST_TEXT_BYTES + 8];
    struct muster_endpoint endpoint;
    enum muster_rc rc = muster_endpoint_parse(registry, 0, &endpoint, ret_error);

    if (rc == MUSTER_OK && !own_host(&endpoint, host))
        rc = muster_error_set(ret_error, MUSTER_UNAVAILABLE, "the registry at %s cannot be reached", registry);
    if (rc != MUSTER_OK)
        return rc;
    snprintf(text, sizeof(text), strchr(host, ':') != NULL ? "[%s]:0" : "%s:0", host);
    return muster_address_parse(text, ret_listen, ret_error);
}

/* argv: publish-reader REGISTRY FD READERS PLACE */
int bench_publish_reader(int argc, char **argv)
{
    struct publish_reader publish = {.received_before = 0};
    struct muster_address listen;
    struct muster_error error = {.rc = MUSTER_OK};
    struct muster_reader_options options = {
        .name = BENCH_PUBLISH_NAME, .job = "bench", .listen = &listen, .data = &publish};
    char host_key[32];
    uint32_t readers, place;

    if (argc != 5)
        return EXIT_USAGE;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    readers = (uint32_t)strtoul(argv[3], NULL, 10);
    place = (uint32_t)strtoul(argv[4], NULL, 10);
    publish.slot = bench_publish_slots((int)strtol(argv[2], NULL, 10), readers);
    if (publish.slot == NULL || place >= readers)
        return EXIT_OTHER;
    publish.slot += place;
    publish.received_before = atomic_load(&publish.slot->bytes_received);
    snprintf(host_key, sizeof(host_key), "host%u", place); /* as if each had a machine of its own */
    options.host_key = host_key;
    options.registry = argv[1];
    if (muster_env_system_open(NULL, &publish.env) != MUSTER_OK ||
        muster_net_system_open(publish.env, &publish.env->net) != MUSTER_OK)
        return EXIT_OTHER;
    if (listen_choose(argv[1], &listen, &error) != MUSTER_OK)
        return command_fail("bench publish", &error);
    muster_task_init(&publish.check, on_check, &publish);
    if (muster_reader_open(publish.env, &options, on_version, &publish.reader, &error) != MUSTER_OK)
        return command_fail("bench publish", &error);
    muster_loop_run(publish.env->loop); /* until it is killed */
    return EXIT_OTHER;
}
