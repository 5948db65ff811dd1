/* A launcher's record: made, written as JSON, read, compared. */
#include "run/claim/record.h"

#include <muster/address.h>
#include <muster/json.h>
#include <muster/strategy_checkpoint.h>

#include "common/output.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NO_CHECKPOINTS    "none"
#define NO_CONSTANT_BATCH "none"

/* --- of this process */

/* The kernel chooses the source address when a datagram socket is connected; nothing is sent. */
static void find_source(const struct addrinfo *to, char *text, size_t room)
{
    struct sockaddr_storage own;
    socklen_t bytes = sizeof(own);
    int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
        getsockname(fd, (struct sockaddr *)&own, &bytes) == 0 &&
        getnameinfo((struct sockaddr *)&own, bytes, text, (socklen_t)room, NULL, 0,
                    NI_NUMERICHOST) != 0)
        text[0] = '\0';
    if (fd >= 0)
        close(fd);
}

/* Towards the first endpoint of the registry. */
static void find_own_address(const char *registry, char *text, size_t room)
{
    const char *at = strstr(registry, "://");
    char first[300], port[8];
    struct muster_endpoint endpoint;
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
    struct addrinfo *found = NULL;

    text[0] = '\0';
    at = at != NULL ? at + 3 : registry;
    snprintf(first, sizeof(first), "%.*s", (int)strcspn(at, ","), at);
    if (muster_endpoint_parse(first, 0, &endpoint, NULL) != MUSTER_OK)
        return;
    snprintf(port, sizeof(port), "%u", endpoint.port);
    if (getaddrinfo(endpoint.host, port, &hints, &found) == 0) {
        find_source(found, text, room);
        freeaddrinfo(found);
    }
}

void run_claim_record_init(struct run_claim_record *record, struct muster_env *env,
                           const struct run_settings *settings, const char *registry)
{
    const char *key = getenv("MUSTER_HOST_KEY"); /* as its workers take it */

    *record = (struct run_claim_record){
        .node_rank = settings->node_rank, .workers = settings->worker_count, .pid = getpid()};
    while (record->launcher == 0)
        record->launcher = muster_rng_next(env->rng);
    record->started = muster_host_started(env->host, record->pid);
    gethostname(record->host, sizeof(record->host) - 1);
    snprintf(record->host_key, sizeof(record->host_key), "%s",
             key != NULL && key[0] != '\0' ? key : muster_host_key(env->host));
    snprintf(record->nodes, sizeof(record->nodes), "%s", settings->nodes_text);
    snprintf(record->tls, sizeof(record->tls), "%s", settings->tls);
    snprintf(record->checkpoints, sizeof(record->checkpoints), "%s",
             settings->checkpoint_dir == NULL     ? NO_CHECKPOINTS
             : settings->checkpoint_every != NULL ? settings->checkpoint_every
                                                  : "10m");
    snprintf(record->constant_batch, sizeof(record->constant_batch), NO_CONSTANT_BATCH);
    if (settings->constant_batch > 0)
        snprintf(record->constant_batch, sizeof(record->constant_batch), "%u",
                 (unsigned)settings->constant_batch);
    snprintf(record->version, sizeof(record->version), "%s", MUSTER_VERSION);
    find_own_address(registry, record->address, sizeof(record->address));
}

/* --- JSON */

static void set_number(struct muster_json *object, const char *name, uint64_t value)
{
    (void)muster_json_set(object, name, muster_json_integer_new((int64_t)value));
}

static void set_text(struct muster_json *object, const char *name, const char *value)
{
    (void)muster_json_set(object, name, muster_json_text_new(value));
}

char *run_claim_record_format(const struct run_claim_record *record)
{
    struct muster_json *object = muster_json_object_new();
    char launcher[17];
    char *text = NULL;

    snprintf(launcher, sizeof(launcher), "%016" PRIx64, record->launcher);
    set_text(object, "launcher", launcher);
    set_number(object, "node_rank", record->node_rank);
    set_text(object, "host", record->host);
    set_text(object, "address", record->address);
    set_number(object, "pid", (uint64_t)record->pid);
    set_number(object, "started", record->started);
    set_text(object, "host_key", record->host_key);
    set_text(object, "nnodes", record->nodes);
    set_number(object, "workers", record->workers);
    set_text(object, "tls", record->tls);
    set_text(object, "checkpoints", record->checkpoints);
    set_text(object, "constant_batch", record->constant_batch);
    set_text(object, "version", record->version);
    if (muster_json_format(object, false, muster_mem_system(), &text) != MUSTER_OK)
        output_no_memory();
    muster_json_free(object);
    return text;
}

static uint64_t number_of(const struct muster_json *object, const char *name)
{
    int64_t value = muster_json_integer(muster_json_member(object, name));

    return value > 0 ? (uint64_t)value : 0;
}

static void copy_text(const struct muster_json *object, const char *name, char *to, size_t room)
{
    const char *text = muster_json_text(muster_json_member(object, name));

    snprintf(to, room, "%s", text != NULL ? text : "");
}

enum muster_rc run_claim_record_parse(const char *text, size_t bytes,
                                      struct run_claim_record *ret_record)
{
    struct run_claim_record record = {.launcher = 0};
    struct muster_json *object = NULL;
    char launcher[20];
    enum muster_rc rc = muster_json_parse(text, bytes, &object, NULL);

    if (rc != MUSTER_OK)
        return rc == MUSTER_RESOURCE_EXHAUSTED ? rc : MUSTER_INVALID_ARGUMENT;
    copy_text(object, "launcher", launcher, sizeof(launcher));
    record.launcher = strtoull(launcher, NULL, 16);
    record.node_rank = number_of(object, "node_rank");
    copy_text(object, "host", record.host, sizeof(record.host));
    copy_text(object, "address", record.address, sizeof(record.address));
    record.pid = (int64_t)number_of(object, "pid");
    record.started = number_of(object, "started");
    copy_text(object, "host_key", record.host_key, sizeof(record.host_key));
    copy_text(object, "nnodes", record.nodes, sizeof(record.nodes));
    record.workers = number_of(object, "workers");
    copy_text(object, "tls", record.tls, sizeof(record.tls));
    copy_text(object, "checkpoints", record.checkpoints, sizeof(record.checkpoints));
    copy_text(object, "constant_batch", record.constant_batch, sizeof(record.constant_batch));
    copy_text(object, "version", record.version, sizeof(record.version));
    muster_json_free(object);
    *ret_record = record;
    return record.launcher != 0 ? MUSTER_OK : MUSTER_INVALID_ARGUMENT;
}

/* --- in words */

const char *run_claim_record_describe(const struct run_claim_record *record,
                                      char text[RUN_CLAIM_TEXT_BYTES])
{
    const char *address = record->address[0] != '\0' ? record->address : "address not known";

    snprintf(text, RUN_CLAIM_TEXT_BYTES, "%s (%s), pid %lld", record->host, address,
             (long long)record->pid);
    return text;
}

/* A launcher of an earlier version does not tell. 600s is 10m. */
static const char *checkpoints_difference(const char *ours, const char *other, char ret_ours[24],
                                          char ret_other[24])
{
    bool saves = strcmp(ours, NO_CHECKPOINTS) != 0,
         other_saves = strcmp(other, NO_CHECKPOINTS) != 0;
    uint64_t steps = 0, ns = 0, other_steps = 0, other_ns = 0;

    if (ours[0] == '\0' || other[0] == '\0' || (!saves && !other_saves))
        return NULL;
    if (saves != other_saves) {
        snprintf(ret_ours, 24, "%s", saves ? "(given)" : "(not given)");
        snprintf(ret_other, 24, "%s", other_saves ? "(given)" : "(not given)");
        return "--checkpoint-dir";
    }
    if (muster_checkpoint_every_parse(ours, &steps, &ns, NULL) == MUSTER_OK &&
        muster_checkpoint_every_parse(other, &other_steps, &other_ns, NULL) == MUSTER_OK &&
        steps == other_steps && ns == other_ns)
        return NULL;
    snprintf(ret_ours, 24, "%s", ours);
    snprintf(ret_other, 24, "%s", other);
    return "--checkpoint-every";
}

static void constant_batch_describe(const char *batch, char ret_text[24])
{
    snprintf(ret_text, 24, "%s", strcmp(batch, NO_CONSTANT_BATCH) != 0 ? batch : "(not given)");
}

/* A launcher of an earlier version does not tell. */
static const char *constant_batch_difference(const char *ours, const char *other, char ret_ours[24],
                                             char ret_other[24])
{
    if (ours[0] == '\0' || other[0] == '\0' || strcmp(ours, other) == 0)
        return NULL;
    constant_batch_describe(ours, ret_ours);
    constant_batch_describe(other, ret_other);
    return "--constant-batch";
}

const char *run_claim_record_difference(const struct run_claim_record *ours,
                                        const struct run_claim_record *other, char ret_ours[24],
                                        char ret_other[24])
{
    const char *option;

    if (strcmp(ours->nodes, other->nodes) != 0) {
        memcpy(ret_ours, ours->nodes, sizeof(ours->nodes));
        memcpy(ret_other, other->nodes, sizeof(other->nodes));
        return "--nnodes";
    }
    if (ours->workers != other->workers) {
        snprintf(ret_ours, 24, "%llu", (unsigned long long)ours->workers);
        snprintf(ret_other, 24, "%llu", (unsigned long long)other->workers);
        return "--nproc-per-node";
    }
    if (strcmp(ours->tls, other->tls) != 0) {
        snprintf(ret_ours, 24, "%s", ours->tls);
        snprintf(ret_other, 24, "%s", other->tls);
        return "--tls";
    }
    option = checkpoints_difference(ours->checkpoints, other->checkpoints, ret_ours, ret_other);
    return option != NULL ? option
                          : constant_batch_difference(ours->constant_batch, other->constant_batch,
                                                      ret_ours, ret_other);
}

/* --- is that process dead? */

bool run_claim_is_dead(struct muster_env *env, const char *host_key, int64_t pid, uint64_t started)
{
    const char *key = getenv("MUSTER_HOST_KEY");
    struct pollfd ended = {.events = POLLIN};
    uint64_t begun;
    bool is_dead;

    if (strcmp(host_key, key != NULL && key[0] != '\0' ? key : muster_host_key(env->host)) != 0 ||
        pid <= 0)
        return false;
    ended.fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0u);
    if (ended.fd < 0)
        return errno == ESRCH;
    begun = muster_host_started(env->host, pid);
    is_dead = (begun != 0 && started != 0 && begun != started) || poll(&ended, 1, 0) == 1;
    close(ended.fd);
    return is_dead;
}
