/* The publisher: makes versions, commits them by compare-and-swap of the registry's key, and tells the readers
 * where to fetch them. */
#include "params/publication/making.h"
#include "params/publication/meters.h"
#include "params/publication/roster.h"
#include "params/publication/waiter.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <muster/registry.h>

#include "params/wire/frame.h"

#define REQUEST_TIMEOUT_NS (2 * MUSTER_NS_PER_S)
#define RETRY_NS           (200 * MUSTER_NS_PER_MS)
#define TELL_AFTER_NS      (2 * MUSTER_NS_PER_S) /* an operation that waits for so long for others … */
#define TELL_AGAIN_NS      (10 * MUSTER_NS_PER_S) /* … is logged, and each time after that */

enum publication_state {
    PUBLICATION_OPENING,
    PUBLICATION_OPEN,
    PUBLICATION_FAILED, /* not opened, or another publisher has the name */
    PUBLICATION_CLOSING,
};

/* The version that is being made. */
enum put_state {
    PUT_NONE,
    PUT_MAKING,
    PUT_COMMITTING,
    PUT_WAITING, /* for readers */
};

struct put {
    enum put_state state;
    struct muster_publication_op *op;
    uint32_t wait_readers;
    struct muster_version_making making;
};

struct muster_publication {
    struct muster_env *env;
    void *data;
    enum publication_state state;
    struct muster_error error;
    char name[MUSTER_PUBLICATION_NAME_BYTES];
    char key[MUSTER_PUBLICATION_KEY_BYTES];
    struct muster_peer_hello hello;
    struct muster_registry *registry;
    char endpoints[128]; /* of the registry, for people */
    struct muster_publication_door *door;
    struct muster_list versions; /* newest first */
    struct muster_held_spare spare;
    uint32_t history;
    struct muster_publication_roster roster;
    /* The key. */
    struct muster_publication_record record; /* as it was last known */
    uint64_t revision;                       /* of the key; 0: there is none */
    bool is_uncertain; /* a swap may have been applied: the key is read before the next one */
    struct muster_registry_op request;
    bool is_requesting, is_stale; /* the version that the request is for was given up */
    struct muster_timer retry, deadline, tell;
    uint64_t waits_since_ns; /* when the operation that is under way was started */
    muster_publication_fn *opened;
    struct put put;
    struct muster_task step;
    muster_publication_fn *closed;
    struct muster_publication_waiter waiter;
    struct muster_publication_meters meters;
};

static void waits_begin(struct muster_publication *publication, uint64_t deadline_ns)
{
    struct muster_loop *loop = publication->env->loop;

    publication->waits_since_ns = muster_loop_now_ns(loop);
    muster_timer_start(&publication->deadline, loop, deadline_ns);
    muster_timer_start(&publication->tell, loop, publication->waits_since_ns + TELL_AFTER_NS);
}

static void waits_end(struct muster_publication *publication)
{
    muster_timer_stop(&publication->deadline);
    muster_timer_stop(&publication->tell);
    muster_timer_stop(&publication->retry);
}

static void step_post(struct muster_publication *publication)
{
    muster_task_post(&publication->step, publication->env->loop);
}

static struct muster_bytes key_bytes(const struct muster_publication *publication)
{
    return (struct muster_bytes){publication->key, strlen(publication->key)};
}

static uint64_t after_ns(const struct muster_publication *publication, uint64_t delay_ns)
{
    return muster_loop_after_ns(publication->env->loop, delay_ns);
}

/* --- The outcome of opening and of a version --- */

static void open_end(struct muster_publication *publication, const struct muster_error *error)
{
    waits_end(publication);
    publication->state = error->rc == MUSTER_OK ? PUBLICATION_OPEN : PUBLICATION_FAILED;
    publication->error = *error;
    publication->opened(publication, error->rc);
}

/* Frees the memory of the version unless it is committed, or may be. */
static void put_end(struct muster_publication *publication, const struct muster_error *error)
{
    struct muster_publication_op *op = publication->put.op;

    waits_end(publication);
    if (publication->put.making.held != NULL && publication->put.state != PUT_WAITING &&
        (!publication->is_uncertain || muster_list_is_empty(&publication->put.making.held->node))) {
        muster_held_unref(publication->put.making.held);
        muster_publication_door_progress(publication->door);
    }
    publication->put = (struct put){.state = PUT_NONE};
    op->error = *error;
    op->done(op, error->rc);
}

static const struct muster_error no_error = {.rc = MUSTER_OK};

static void work_end(struct muster_publication *publication, const struct muster_error *error)
{
    if (publication->state == PUBLICATION_OPENING)
        open_end(publication, error);
    else if (publication->put.state != PUT_NONE)
        put_end(publication, error);
}

/* --- Readers --- */

static uint32_t readers_count(struct muster_publication *publication, uint64_t version,
                              uint32_t *ret_lacking)
{
    uint32_t count = 0, lacking = 0;

    MUSTER_LIST_EACH (muster_publication_door_clients(publication->door), client,
                      struct muster_publication_client, node) {
        if (!client->is_joined || !client->join.is_following)
            continue;
        count += client->has_version >= version;
        lacking += client->has_version < version;
    }
    *ret_lacking = lacking;
    return count;
}

/* WAIT_FOR_ALL counts the readers that are connected now, those that came after the put began included. */
static bool readers_suffice(struct muster_publication *publication)
{
    const struct put *put = &publication->put;
    uint32_t lacking;
    uint32_t count = readers_count(publication, put->op->version, &lacking);

    put->op->readers = count;
    return put->wait_readers == MUSTER_PUBLICATION_WAIT_FOR_ALL ? lacking == 0
                                                                : count >= put->wait_readers;
}

static void put_check_readers(struct muster_publication *publication)
{
    if (publication->put.state == PUT_WAITING && readers_suffice(publication))
        put_end(publication, &no_error);
}

static void missing_name(struct muster_publication *publication, struct muster_error *ret_error)
{
    uint64_t version = publication->put.op->version;
    size_t room = sizeof(ret_error->text), used;
    uint32_t lacking, wanted = publication->put.wait_readers;
    uint32_t count = readers_count(publication, version, &lacking);

    if (wanted == MUSTER_PUBLICATION_WAIT_FOR_ALL)
        wanted = count + lacking;
    muster_error_set(ret_error, MUSTER_DEADLINE_EXCEEDED,
                     "version %" PRIu64 " is made, but %u of %u readers (wait_readers) have it",
                     version, count, wanted);
    used = strlen(ret_error->text);
    if (count + lacking < wanted)
        used +=
            (size_t)snprintf(ret_error->text + used, room - used,
                             "; %u are connected: start more, or wait for fewer", count + lacking);
    MUSTER_LIST_EACH (muster_publication_door_clients(publication->door), client,
                      struct muster_publication_client, node) {
        char id[MUSTER_INCARNATION_TEXT_BYTES];
        const char *who = client->join.address;

        if (!client->is_joined || !client->join.is_following || client->has_version >= version ||
            used >= room)
            continue;
        if (who[0] == '\0')
            who = muster_incarnation_format(&client->join.reader, id);
        used += (size_t)snprintf(ret_error->text + used, room - used, "; %s has %" PRIu64, who,
                                 client->has_version);
    }
}

static void sources_tell(struct muster_publication *publication,
                         struct muster_publication_client *client, uint64_t version)
{
    char sources[MUSTER_PUBLICATION_TREES * MUSTER_PUBLICATION_SOURCES_BYTES_MAX];
    uint32_t counts[MUSTER_PUBLICATION_TREES];
    bool has_it = muster_held_find(&publication->versions, version) != NULL;
    struct muster_frame_header header = {.type = MUSTER_PUBLICATION_SOURCES, .op.step = version};
    size_t bytes = muster_publication_roster_sources(
        &publication->roster, muster_publication_door_clients(publication->door), client, version,
        has_it ? publication->record.address : NULL, sources, counts);

    header.chunk = counts[0];
    (void)!muster_publication_client_send(client, header, sources, bytes);
}

static enum muster_publication_prospect on_missing(void *owner, uint64_t version)
{
    const struct muster_publication *publication = owner;

    return version > publication->record.version ? MUSTER_PUBLICATION_IS_UNKNOWN
                                                 : MUSTER_PUBLICATION_IS_PAST;
}

/* All readers are told of a version once the registry has it; before that a question for it is not answered. */
static void on_where(void *owner, struct muster_publication_client *client, uint64_t version)
{
    struct muster_publication *publication = owner;

    if (version <= publication->record.version && client->join.is_following)
        sources_tell(publication, client, version);
}

/* Also as it joins: a reader whose link was lost may have the version already. */
static void on_have(void *owner, struct muster_publication_client *client)
{
    (void)client;
    put_check_readers(owner);
}

static void on_gone(void *owner, struct muster_publication_client *client)
{
    struct muster_publication *publication = owner;

    muster_publication_roster_forget(&publication->roster, client);
    if (publication->put.state == PUT_WAITING) /* for one reader less */
        step_post(publication);
}

static const struct muster_publication_door_events door_events = {.on_missing = on_missing,
                                                                  .on_join = on_have,
                                                                  .on_where = on_where,
                                                                  .on_have = on_have,
                                                                  .on_gone = on_gone};

/* --- The key --- */

static void key_step(struct muster_publication *publication);

/* Attempts go on until the deadline. */
static void request_failed(struct muster_publication *publication, enum muster_rc rc,
                           const struct muster_error *error)
{
    struct muster_error final = *error;

    final.rc = rc;
    publication->error = final;
    if (muster_params_rc_is_final(rc))
        work_end(publication, &final);
    else
        muster_timer_start(&publication->retry, publication->env->loop,
                           after_ns(publication, RETRY_NS));
}

static void on_retry(struct muster_timer *timer)
{
    key_step(timer->data);
}

static bool record_is_own(const struct muster_publication *publication,
                          const struct muster_publication_record *record)
{
    return muster_incarnation_is_equal(&record->publisher, &publication->hello.incarnation);
}

static void version_trim(struct muster_publication *publication)
{
    uint32_t count = 0;

    MUSTER_LIST_EACH_SAFE (&publication->versions, held, struct muster_held_version, node) {
        if (count++ <= publication->history)
            continue;
        muster_list_remove(&held->node); /* answers that are on their way keep its memory */
        muster_held_unref(held);
    }
    muster_publication_door_progress(publication->door);
}

/* Without memory for the trees there is no order. */
static void readers_tell(struct muster_publication *publication)
{
    struct muster_publication_roster *roster = &publication->roster;
    uint64_t version = publication->record.version;

    for (uint32_t i = 0; i < roster->count; i++) {
        struct muster_publication_client *client = muster_publication_roster_reader(roster, i);

        if (client != NULL)
            sources_tell(publication, client, version);
    }
    if (roster->count > 0)
        return;
    MUSTER_LIST_EACH_SAFE (muster_publication_door_clients(publication->door), client,
                           struct muster_publication_client, node) {
        if (client->is_joined && client->join.is_following)
            sources_tell(publication, client, version);
    }
}

/* The registry has the version: tell readers where to fetch it. */
static void put_commit(struct muster_publication *publication)
{
    struct put *put = &publication->put;

    put->state = PUT_WAITING;
    put->op->version = publication->record.version;
    publication->is_uncertain = false;
    MUSTER_LOG(publication->env, INFO, "publication_version", "name", publication->name, "version",
               publication->record.version, "bytes", publication->record.bytes);
    version_trim(publication);
    muster_publication_roster_build(&publication->roster,
                                    muster_publication_door_clients(publication->door),
                                    publication->record.version);
    readers_tell(publication);
    put_check_readers(publication);
}

/* Take over the key as the registry has it. True: the swap may be tried again. */
static bool key_adopt(struct muster_publication *publication, const struct muster_registry_kv *kvs,
                      size_t count)
{
    struct muster_publication_record record = {.version = 0};
    struct muster_error error;
    enum muster_rc rc = MUSTER_OK;

    publication->revision = count > 0 ? kvs[0].mod_revision : 0;
    if (count > 0)
        rc =
            muster_publication_record_unpack(kvs[0].value.data, kvs[0].value.size, &record, &error);
    if (rc != MUSTER_OK) {
        work_end(publication, &error);
        return false;
    }
    if (publication->state == PUBLICATION_OPENING) {
        publication->record.version = record.version;
        publication->record.bytes = record.bytes;
        memcpy(publication->record.root, record.root, sizeof(record.root));
        if (!record_is_own(publication, &record))
            return true;
        open_end(publication, &no_error); /* an earlier attempt was applied */
        return false;
    }
    if (count > 0 && !record_is_own(publication, &record)) {
        muster_error_set(&error, MUSTER_ABORTED, "another publisher at %s has taken %s",
                         record.address, publication->name);
        MUSTER_LOG(publication->env, WARN, "publication_taken", "name", publication->name,
                   "version", record.version, "address", record.address);
        publication->error = error;
        publication->state = PUBLICATION_FAILED;
        work_end(publication, &error);
        return false;
    }
    if (count > 0)
        publication->record = record;
    return true;
}

/* False: nobody waits for the answer any more. */
static bool request_take(struct muster_publication *publication)
{
    bool is_stale = publication->is_stale;

    publication->is_requesting = publication->is_stale = false;
    if (publication->state != PUBLICATION_OPENING && publication->state != PUBLICATION_OPEN)
        return false;
    if (is_stale)
        key_step(publication);
    return !is_stale;
}

/* The version that is to be committed, as it would stand in the registry. */
static void record_next(struct muster_publication *publication,
                        struct muster_publication_record *ret_record)
{
    const struct muster_held_version *held = publication->put.making.held;

    *ret_record = publication->record;
    if (publication->state == PUBLICATION_OPENING)
        return;
    ret_record->version = held->shown.number;
    ret_record->bytes = held->manifest.bytes;
    memcpy(ret_record->root, held->shown.root, sizeof(held->shown.root));
}

static void on_swapped(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_publication *publication = op->data;

    if (!request_take(publication))
        return;
    if (rc != MUSTER_OK) {
        publication->is_uncertain |= muster_registry_is_unknown(rc) && !op->is_unsent;
        request_failed(publication, rc, &op->error);
        return;
    }
    if (!op->is_succeeded) {
        if (key_adopt(publication, op->kvs, op->kv_count))
            key_step(publication);
        return;
    }
    record_next(publication, &publication->record);
    publication->revision = op->revision;
    if (publication->state == PUBLICATION_OPENING)
        open_end(publication, &no_error);
    else
        put_commit(publication);
}

static void key_swap(struct muster_publication *publication)
{
    uint8_t bytes[MUSTER_PUBLICATION_RECORD_BYTES];
    struct muster_publication_record record;
    enum muster_rc rc;

    record_next(publication, &record);
    muster_publication_record_pack(&record, bytes);
    publication->request.data = publication;
    rc = muster_registry_swap_start(&publication->request, publication->registry,
                                    key_bytes(publication), publication->revision,
                                    (struct muster_bytes){bytes, sizeof(bytes)}, 0,
                                    after_ns(publication, REQUEST_TIMEOUT_NS), on_swapped);
    publication->is_requesting = rc == MUSTER_OK;
    if (rc != MUSTER_OK)
        muster_timer_start(&publication->retry, publication->env->loop,
                           after_ns(publication, RETRY_NS));
}

/* The number follows the newest version of the registry, so it is known here only. A version of before whose
 * outcome was not known has that number, if it was committed. */
static void put_seal(struct muster_publication *publication)
{
    struct muster_held_version *held = publication->put.making.held;
    uint64_t number = publication->record.version + 1;
    struct muster_error error;

    if (held->packed != NULL && held->shown.number == publication->record.version &&
        memcmp(held->shown.root, publication->record.root, sizeof(held->shown.root)) == 0) {
        put_commit(publication); /* an earlier attempt was applied */
        return;
    }
    if (held->packed == NULL || held->shown.number != number) {
        muster_list_remove(&held->node);
        muster_mem_free(held->mem, held->packed);
        held->packed = NULL;
        held->manifest.version = held->shown.number = number;
        if (muster_held_seal(held) != MUSTER_OK) {
            muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED,
                             "no memory for the manifest of a version");
            put_end(publication, &error);
            return;
        }
        /* A reader may hear of it by the registry before this process does. */
        muster_list_prepend(&publication->versions, &held->node);
    }
    key_swap(publication);
}

static void on_read(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_publication *publication = op->data;

    if (!request_take(publication))
        return;
    if (rc != MUSTER_OK) {
        request_failed(publication, rc, &op->error);
        return;
    }
    if (!key_adopt(publication, op->kvs, op->kv_count))
        return;
    publication->is_uncertain = false;
    key_step(publication);
}

static void key_read(struct muster_publication *publication)
{
    const struct muster_registry_range range = {.key = key_bytes(publication),
                                                .reach = MUSTER_REGISTRY_KEY};
    enum muster_rc rc;

    publication->request.data = publication;
    rc = muster_registry_range_start(&publication->request, publication->registry, &range,
                                     after_ns(publication, REQUEST_TIMEOUT_NS), on_read);
    publication->is_requesting = rc == MUSTER_OK;
    if (rc != MUSTER_OK)
        muster_timer_start(&publication->retry, publication->env->loop,
                           after_ns(publication, RETRY_NS));
}

static void key_step(struct muster_publication *publication)
{
    if (publication->is_requesting)
        return; /* of a version that was given up; its answer goes on */
    if (publication->is_uncertain)
        key_read(publication);
    else if (publication->state == PUBLICATION_OPENING)
        key_swap(publication);
    else if (publication->put.state == PUT_COMMITTING)
        put_seal(publication);
}

/* --- Making a version --- */

static void put_make(struct muster_publication *publication)
{
    struct put *put = &publication->put;

    if (muster_version_making_step(&put->making)) {
        step_post(publication);
        return;
    }
    put->state = PUT_COMMITTING;
    key_step(publication);
}

/* Names the readers or the registry that the operation waits for. adverb: "yet" or "in time". */
static void cause_name(struct muster_publication *publication, const char *adverb,
                       struct muster_error *ret_error)
{
    if (publication->put.state == PUT_WAITING)
        missing_name(publication, ret_error);
    else
        muster_error_set(ret_error, MUSTER_DEADLINE_EXCEEDED,
                         "the registry at %s has not answered %s%s%.110s", publication->endpoints,
                         adverb, publication->error.text[0] != '\0' ? ": " : "",
                         publication->error.text);
}

/* A deadline may be far away, so the log says for whom the program waits. */
static void on_tell(struct muster_timer *timer)
{
    struct muster_publication *publication = timer->data;
    uint64_t now_ns = muster_loop_now_ns(publication->env->loop);
    struct muster_error error;

    muster_timer_start(timer, publication->env->loop, now_ns + TELL_AGAIN_NS);
    if (publication->put.state == PUT_MAKING) /* this process is at work, and waits for nobody */
        return;
    cause_name(publication, "yet", &error);
    MUSTER_LOG(publication->env, WARN, "publication_waits", "publication", publication->name,
               "reason", error.text, "seconds",
               (now_ns - publication->waits_since_ns) / MUSTER_NS_PER_S);
}

static void on_deadline(struct muster_timer *timer)
{
    struct muster_publication *publication = timer->data;
    struct muster_error error;

    cause_name(publication, "in time", &error);
    if (publication->is_requesting) /* its outcome is read before the next version */
        publication->is_uncertain = publication->is_stale = true;
    work_end(publication, &error);
}

static enum muster_rc put_permit(const struct muster_publication *publication,
                                 struct muster_error *ret_error)
{
    if (publication->state == PUBLICATION_FAILED && publication->error.rc == MUSTER_ABORTED) {
        *ret_error = publication->error;
        return MUSTER_ABORTED;
    }
    if (publication->state != PUBLICATION_OPEN)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "the publication is not open");
    if (publication->put.state != PUT_NONE)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "another version is being made");
    return MUSTER_OK;
}

enum muster_rc muster_publication_put_start(struct muster_publication_op *op,
                                            struct muster_publication *publication,
                                            const struct muster_publication_put *put,
                                            muster_publication_op_fn *done)
{
    struct muster_version_making making;
    enum muster_rc rc = put_permit(publication, &op->error);

    if (rc == MUSTER_OK)
        rc = muster_version_making_init(&making, publication->env->mem,
                                        publication->record.version + 1, put, &publication->spare,
                                        &op->error);
    if (rc != MUSTER_OK)
        return rc;
    op->done = done;
    op->version = 0;
    op->readers = 0;
    publication->error.text[0] = '\0';
    publication->put = (struct put){
        .state = PUT_MAKING, .op = op, .wait_readers = put->wait_readers, .making = making};
    waits_begin(publication, put->deadline_ns);
    step_post(publication);
    return MUSTER_OK;
}

/* --- Life --- */

static enum muster_rc door_open(struct muster_publication *publication,
                                const struct muster_publication_options *options,
                                struct muster_error *ret_error)
{
    struct muster_host *host = publication->env->host;
    const char *host_key = host != NULL ? muster_host_key(host) : "";
    const struct muster_publication_door_options door = {.name = publication->name,
                                                         .host_key = host_key,
                                                         .hello = &publication->hello,
                                                         .listen = options->listen,
                                                         .authorization = options->authorization,
                                                         .versions = &publication->versions,
                                                         .events = &door_events,
                                                         .owner = publication};
    enum muster_rc rc =
        muster_publication_door_open(publication->env, &door, &publication->door, ret_error);

    return rc != MUSTER_OK
               ? rc
               : muster_publication_reach_fill(muster_publication_door_address(publication->door),
                                               options->reach, publication->record.address,
                                               ret_error);
}

static void publication_free(struct muster_publication *publication)
{
    struct muster_list *node;

    while ((node = muster_list_pop(&publication->versions)) != NULL)
        muster_held_unref(MUSTER_CONTAINER_OF(node, struct muster_held_version, node));
    muster_publication_roster_fini(&publication->roster);
    muster_held_spare_fini(&publication->spare, publication->env->mem);
    muster_mem_free(publication->env->mem, publication);
}

static void on_registry_closed(struct muster_registry *registry)
{
    struct muster_publication *publication = muster_registry_data(registry);

    if (publication->closed != NULL)
        publication->closed(publication, MUSTER_OK);
    publication_free(publication);
}

static void on_door_closed(void *owner)
{
    struct muster_publication *publication = owner;

    if (publication->registry != NULL)
        muster_registry_close(publication->registry, on_registry_closed);
    else
        publication_free(publication);
}

static void closing_step(struct muster_publication *publication)
{
    struct muster_error error;

    muster_publication_meters_close(&publication->meters);
    if (publication->put.state != PUT_NONE) {
        muster_error_set(&error, MUSTER_CANCELLED, "the publication was closed");
        if (publication->put.making.held != NULL && publication->put.state != PUT_WAITING)
            publication->is_uncertain = false; /* its memory goes, committed or not */
        put_end(publication, &error);
    }
    muster_publication_door_close(publication->door, on_door_closed);
}

static void on_step(struct muster_task *task)
{
    struct muster_publication *publication = task->data;

    if (publication->state == PUBLICATION_CLOSING)
        closing_step(publication);
    else if (publication->state == PUBLICATION_OPENING)
        key_step(publication);
    else if (publication->put.state == PUT_MAKING)
        put_make(publication);
    else
        put_check_readers(publication);
}

static void on_collect(struct muster_metrics_collector *collector)
{
    struct muster_publication *publication = collector->data;
    struct muster_publication_stats stats;

    muster_publication_stats(publication, &stats);
    muster_publication_meters_set(&publication->meters, &stats);
}

enum muster_rc muster_publication_open(struct muster_env *env,
                                       const struct muster_publication_options *options,
                                       muster_publication_fn *opened,
                                       struct muster_publication **ret_publication,
                                       struct muster_error *ret_error)
{
    const struct muster_registry_options registry = {.endpoints = options->registry};
    const char *job = options->job != NULL ? options->job : "";
    struct muster_publication *publication;
    enum muster_rc rc = muster_publication_name_check(options->name, ret_error);

    if (rc == MUSTER_OK && job[0] != '\0')
        rc = muster_job_name_check(job, ret_error);
    if (rc == MUSTER_OK && options->history > MUSTER_PUBLICATION_HISTORY_MAX)
        rc = muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                              "history must be at most %u, got %u", MUSTER_PUBLICATION_HISTORY_MAX,
                              options->history);
    if (rc != MUSTER_OK)
        return rc;
    publication = muster_mem_alloc_zero(env->mem, 1, sizeof(*publication));
    if (publication == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "no memory for a publication");
    publication->env = env;
    publication->spare.host = env->host;
    publication->data = options->data;
    publication->opened = opened;
    publication->history = options->history != 0 ? options->history : 1;
    muster_list_init(&publication->versions);
    muster_publication_roster_init(&publication->roster, env->mem);
    muster_task_init(&publication->step, on_step, publication);
    muster_timer_init(&publication->retry, on_retry, publication);
    muster_timer_init(&publication->deadline, on_deadline, publication);
    muster_timer_init(&publication->tell, on_tell, publication);
    snprintf(publication->name, sizeof(publication->name), "%s", options->name);
    snprintf(publication->endpoints, sizeof(publication->endpoints), "%s", options->registry);
    muster_publication_key(job, options->name, publication->key);
    muster_publication_hello_fill(env, job, &publication->hello);
    publication->record.publisher = publication->hello.incarnation;
    rc = muster_registry_open(env, &registry, &publication->registry, ret_error);
    if (rc != MUSTER_OK) {
        publication_free(publication);
        return rc;
    }
    muster_registry_set_data(publication->registry, publication);
    rc = door_open(publication, options, ret_error);
    if (rc != MUSTER_OK) {
        if (publication->door != NULL)
            muster_publication_door_close(publication->door, on_door_closed);
        else
            on_door_closed(publication);
        return rc;
    }
    muster_publication_meters_open(&publication->meters, env, publication->name, on_collect,
                                   publication);
    waits_begin(publication, options->deadline_ns);
    step_post(publication);
    *ret_publication = publication;
    return MUSTER_OK;
}

void *muster_publication_data(const struct muster_publication *publication)
{
    return publication->data;
}

struct muster_publication_waiter *muster_publication_waiter(struct muster_publication *publication)
{
    return &publication->waiter;
}

struct muster_env *muster_publication_env(const struct muster_publication *publication)
{
    return publication->env;
}

const struct muster_error *muster_publication_error(const struct muster_publication *publication)
{
    return &publication->error;
}

const struct muster_address *muster_publication_address(
    const struct muster_publication *publication)
{
    return muster_publication_door_address(publication->door);
}

uint64_t muster_publication_version(const struct muster_publication *publication)
{
    return publication->record.version;
}

void muster_publication_stats(const struct muster_publication *publication,
                              struct muster_publication_stats *ret_stats)
{
    const struct muster_publication_door_stats *stats =
        muster_publication_door_stats(publication->door);

    *ret_stats = (struct muster_publication_stats){.chunks_sent = stats->chunks,
                                                   .deltas_sent = stats->deltas,
                                                   .bytes_sent = stats->bytes,
                                                   .version = publication->record.version};
    MUSTER_LIST_EACH (muster_publication_door_clients(publication->door), client,
                      struct muster_publication_client, node)
        ret_stats->readers += client->is_joined && client->join.is_following;
}

void muster_publication_close(struct muster_publication *publication, muster_publication_fn *closed)
{
    publication->closed = closed;
    publication->state = PUBLICATION_CLOSING;
    waits_end(publication);
    step_post(publication);
}
