/* A reader: follows the registry's key, fetches the newest version, shows it when it is whole, and serves it to
 * others. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <muster/registry.h>

#include "params/publication/door.h"
#include "params/publication/fetch.h"
#include "params/publication/meters.h"
#include "params/publication/waiter.h"
#include "runtime/value/backoff.h"

#define REQUEST_TIMEOUT_NS (5 * MUSTER_NS_PER_S)
#define CONNECT_TIMEOUT_NS (2 * MUSTER_NS_PER_S)
#define READ_AGAIN_NS      (200 * MUSTER_NS_PER_MS)

/* The pause before the publisher is asked again when all sources have failed. A single one that died is
 * skipped at once. */
static const struct muster_backoff ask_again = {.first_ns = 20 * MUSTER_NS_PER_MS,
                                                .max_ns = 2 * MUSTER_NS_PER_S,
                                                .growth_permille = 2000,
                                                .jitter_permille = 250};

/* The link to the publisher, which tells where versions are. */
struct guide {
    struct muster_peer_link *link; /* NULL: none */
    bool is_joined;
    struct muster_address address;
    struct muster_incarnation publisher; /* that it leads to */
    struct muster_timer retry;
    uint64_t backoff_ns;
    uint64_t told; /* the publisher knows that this reader has that version */
    bool is_asked; /* an answer to WHERE is awaited */
    uint64_t asked_ns;
    /* The answer. */
    uint64_t version;
    struct muster_publication_sources sources;
    bool is_fresh; /* it has not been used */
    union {
        char sources[MUSTER_PUBLICATION_TREES * MUSTER_PUBLICATION_SOURCES_BYTES_MAX];
        char text[sizeof(((struct muster_error *)0)->text)];
    } received;
};

struct muster_reader {
    struct muster_env *env;
    void *data;
    struct muster_error error;
    char key[MUSTER_PUBLICATION_KEY_BYTES];
    struct muster_peer_hello hello;
    struct muster_publication_join join;
    uint64_t min_version;
    muster_reader_fn *on_version;
    struct muster_registry *registry;
    char endpoints[128];      /* of the registry, for people */
    struct muster_error away; /* its last answer, where that was an error; or that none has come */
    struct muster_registry_op range;
    struct muster_registry_watch watch;
    bool is_closing;
    struct muster_timer read_again;
    struct muster_publication_record record; /* the newest that the registry has told */
    struct muster_publication_door *door;    /* NULL: it serves nobody */
    struct guide guide;
    struct muster_publication_fetch fetch;
    struct muster_list
        versions; /* the current one, those that the program uses, the one that comes */
    struct muster_held_version *current;
    struct muster_held_spare spare;
    struct muster_list waits;
    struct muster_task step;
    muster_reader_fn *closed;
    struct muster_publication_waiter waiter;
    struct muster_publication_meters meters;
};

static void step_post(struct muster_reader *reader)
{
    muster_task_post(&reader->step, reader->env->loop);
}

static uint64_t current_number(const struct muster_reader *reader)
{
    return reader->current != NULL ? reader->current->shown.number : 0;
}

/* --- Versions --- */

static void version_drop(struct muster_held_version *held)
{
    muster_list_remove(&held->node); /* answers that are on their way keep its memory */
    muster_held_unref(held);
}

/* Whether the program uses an older version than the current one. */
static bool is_full(const struct muster_reader *reader)
{
    MUSTER_LIST_EACH (&reader->versions, held, struct muster_held_version, node) {
        if (held != reader->current && held != reader->fetch.held && held->user_count > 0)
            return true;
    }
    return false;
}

/* The version before the current one is kept until its memory is needed: other readers may ask for changes
 * since then. */
static void old_versions_drop(struct muster_reader *reader)
{
    MUSTER_LIST_EACH_SAFE (&reader->versions, held, struct muster_held_version, node) {
        if (held != reader->current && held->user_count == 0)
            version_drop(held);
    }
}

static bool is_shown(const struct muster_reader *reader)
{
    return reader->current != NULL && reader->current->shown.number >= reader->min_version;
}

/* --- Waits --- */

static void on_wait_task(struct muster_task *task)
{
    struct muster_reader_op *op = task->data;

    op->done(op, op->rc);
}

static void wait_end(struct muster_reader_op *op, enum muster_rc rc)
{
    muster_timer_stop(&op->timer);
    muster_list_remove(&op->node);
    op->rc = rc;
    muster_task_post(&op->task, op->reader->env->loop);
}

/* The newest version in the registry is known only while that answers. */
static void missing_describe(const struct muster_reader *reader, uint64_t version,
                             struct muster_error *ret_error)
{
    if (reader->away.rc != MUSTER_OK)
        muster_error_set(ret_error, MUSTER_DEADLINE_EXCEEDED,
                         "version %" PRIu64 " is not here: this reader has %" PRIu64 "; %.150s",
                         version, current_number(reader), reader->away.text);
    else
        muster_error_set(ret_error, MUSTER_DEADLINE_EXCEEDED,
                         "version %" PRIu64 " is not here: this reader has %" PRIu64
                         ", the registry %" PRIu64 "%s%.120s",
                         version, current_number(reader), reader->record.version,
                         reader->error.rc != MUSTER_OK ? "; " : "",
                         reader->error.rc != MUSTER_OK ? reader->error.text : "");
}

static void on_wait_deadline(struct muster_timer *timer)
{
    struct muster_reader_op *op = timer->data;

    missing_describe(op->reader, op->version, &op->error);
    wait_end(op, MUSTER_DEADLINE_EXCEEDED);
}

static void waits_check(struct muster_reader *reader)
{
    MUSTER_LIST_EACH_SAFE (&reader->waits, op, struct muster_reader_op, node) {
        if (is_shown(reader) && reader->current->shown.number >= op->version)
            wait_end(op, MUSTER_OK);
    }
}

enum muster_rc muster_reader_wait_start(struct muster_reader_op *op, struct muster_reader *reader,
                                        uint64_t version, uint64_t deadline_ns,
                                        muster_reader_op_fn *done)
{
    if (reader->is_closing)
        return muster_error_set(&op->error, MUSTER_FAILED_PRECONDITION, "the reader is closing");
    op->error.rc = MUSTER_OK;
    op->done = done;
    op->reader = reader;
    op->version = version;
    op->rc = MUSTER_OK;
    muster_timer_init(&op->timer, on_wait_deadline, op);
    muster_task_init(&op->task, on_wait_task, op);
    muster_list_append(&reader->waits, &op->node);
    muster_timer_start(&op->timer, reader->env->loop, deadline_ns);
    waits_check(reader);
    return MUSTER_OK;
}

void muster_reader_wait_cancel(struct muster_reader_op *op)
{
    if (muster_task_is_posted(&op->task) || muster_list_is_empty(&op->node))
        return;
    muster_error_set(&op->error, MUSTER_CANCELLED, "cancelled");
    wait_end(op, MUSTER_CANCELLED);
}

/* --- The link to the publisher --- */

static void guide_drop(struct muster_reader *reader)
{
    struct guide *guide = &reader->guide;
    struct muster_peer_link *link = guide->link;

    guide->link = NULL;
    guide->is_joined = guide->is_asked = false;
    if (link != NULL)
        muster_peer_link_close(link);
}

static void guide_retry(struct muster_reader *reader)
{
    struct guide *guide = &reader->guide;
    uint64_t wait_ns = muster_backoff_next(&ask_again, &guide->backoff_ns, reader->env->rng);

    muster_timer_start(&guide->retry, reader->env->loop,
                       muster_loop_after_ns(reader->env->loop, wait_ns));
}

static void guide_lose(struct muster_reader *reader, const struct muster_error *error)
{
    MUSTER_LOG(reader->env, DEBUG, "publication_guide_lost", "name", reader->join.name, "reason",
               error->text);
    reader->error = *error;
    guide_drop(reader);
    guide_retry(reader);
}

static void guide_send(struct muster_reader *reader, enum muster_publication_message message,
                       uint64_t version)
{
    const struct muster_frame_header header = {.type = (uint8_t)message, .op.step = version};
    struct muster_error error;

    if (!reader->guide.is_joined || muster_publication_send(reader->guide.link, header, NULL, 0))
        return;
    muster_error_set(&error, MUSTER_UNAVAILABLE, "no memory for a message");
    guide_lose(reader, &error);
}

static void on_guide_ready(struct muster_peer_link *link)
{
    struct muster_reader *reader = muster_peer_link_data(link);
    const struct muster_frame_header header = {.type = MUSTER_PUBLICATION_JOIN,
                                               .offset = current_number(reader)};
    uint8_t bytes[MUSTER_PUBLICATION_JOIN_BYTES];
    struct muster_error error;

    if (!muster_incarnation_is_equal(&muster_peer_link_hello(link)->incarnation,
                                     &reader->guide.publisher)) {
        muster_error_set(&error, MUSTER_UNAVAILABLE,
                         "another process than the publisher answers at %s",
                         reader->record.address);
        guide_lose(reader, &error);
        return;
    }
    muster_publication_join_pack(&reader->join, bytes);
    if (!muster_publication_send(link, header, bytes, sizeof(bytes))) {
        muster_error_set(&error, MUSTER_UNAVAILABLE, "no memory for a message");
        guide_lose(reader, &error);
        return;
    }
    reader->guide.is_joined = true;
    reader->guide.told = header.offset;
    step_post(reader);
}

static void *on_guide_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct muster_reader *reader = muster_peer_link_data(link);
    struct guide *guide = &reader->guide;
    struct muster_error error;

    if (header->channel == MUSTER_FRAME_PUBLICATION) {
        if (header->type == MUSTER_PUBLICATION_SOURCES &&
            header->payload_bytes <= sizeof(guide->received.sources))
            return guide->received.sources;
        if (header->type == MUSTER_PUBLICATION_REFUSED &&
            header->payload_bytes < sizeof(guide->received.text))
            return guide->received.text;
    }
    muster_error_set(&error, MUSTER_UNAVAILABLE, "%s is not a publisher: it sent message %u",
                     reader->record.address, header->type);
    guide_lose(reader, &error);
    return NULL;
}

static void sources_receive(struct muster_reader *reader, const struct muster_frame_header *header)
{
    struct guide *guide = &reader->guide;

    if (header->op.step < guide->version)
        return;
    guide->version = header->op.step;
    guide->is_fresh = true;
    guide->is_asked = false;
    muster_publication_sources_unpack(guide->received.sources, header->payload_bytes, header->chunk,
                                      &guide->sources);
    step_post(reader);
}

static void on_guide_payload(struct muster_peer_link *link,
                             const struct muster_frame_header *header, void *buffer)
{
    struct muster_reader *reader = muster_peer_link_data(link);
    struct guide *guide = &reader->guide;
    struct muster_error error;

    (void)buffer;
    if (header->type == MUSTER_PUBLICATION_SOURCES) {
        sources_receive(reader, header);
        return;
    }
    guide->received.text[header->payload_bytes] = '\0';
    muster_error_set(&error,
                     header->phase != MUSTER_OK ? (enum muster_rc)header->phase : MUSTER_UNKNOWN,
                     "the publisher at %s: %.120s", reader->record.address, guide->received.text);
    guide_lose(reader, &error);
}

static void on_guide_down(struct muster_peer_link *link, const struct muster_error *error)
{
    guide_lose(muster_peer_link_data(link), error);
}

static const struct muster_peer_link_events guide_events = {.on_ready = on_guide_ready,
                                                            .on_frame = on_guide_frame,
                                                            .on_payload = on_guide_payload,
                                                            .on_down = on_guide_down};

static void guide_open(struct muster_reader *reader)
{
    struct guide *guide = &reader->guide;
    uint64_t deadline_ns = muster_loop_after_ns(reader->env->loop, CONNECT_TIMEOUT_NS);

    if (muster_peer_link_open(reader->env, &guide->address, &reader->hello, deadline_ns,
                              &guide_events, reader, &guide->link) == MUSTER_OK)
        return;
    guide->link = NULL;
    guide_retry(reader);
}

/* A publisher that does not answer in time is connected to again. With many readers an answer takes its time: all
 * ask at once. */
static void on_guide_retry(struct muster_timer *timer)
{
    struct muster_reader *reader = timer->data;
    uint64_t due_ns = reader->guide.asked_ns + MUSTER_PUBLICATION_SILENCE_NS;

    if (reader->guide.is_asked && muster_loop_now_ns(reader->env->loop) < due_ns) {
        muster_timer_start(timer, reader->env->loop, due_ns);
        return;
    }
    if (reader->guide.is_asked)
        guide_drop(reader);
    if (reader->guide.link == NULL)
        guide_open(reader);
    else
        step_post(reader);
}

/* The registry names another publisher. */
static void guide_follow(struct muster_reader *reader)
{
    struct guide *guide = &reader->guide;
    struct muster_error error;

    if (muster_incarnation_is_equal(&guide->publisher, &reader->record.publisher))
        return;
    guide_drop(reader);
    muster_timer_stop(&guide->retry);
    guide->publisher = reader->record.publisher;
    guide->backoff_ns = 0;
    guide->is_fresh = false;
    guide->version = 0;
    if (muster_address_parse(reader->record.address, &guide->address, &error) == MUSTER_OK)
        guide_open(reader);
    else
        reader->error = error;
}

/* --- Fetching --- */

static void on_progress(struct muster_publication_fetch *fetch)
{
    struct muster_reader *reader = fetch->owner;

    if (muster_list_is_empty(&fetch->held->node))
        muster_list_append(&reader->versions, &fetch->held->node);
    if (reader->door != NULL)
        muster_publication_door_progress(reader->door);
}

static void on_done(struct muster_publication_fetch *fetch)
{
    struct muster_reader *reader = fetch->owner;

    if (muster_list_is_empty(&fetch->held->node)) /* a version without chunks */
        muster_list_append(&reader->versions, &fetch->held->node);
    reader->current = fetch->held;
    fetch->held = NULL;
    reader->error.rc = MUSTER_OK;
    reader->guide.backoff_ns = 0;
    MUSTER_LOG(reader->env, DEBUG, "publication_version_whole", "name", reader->join.name,
               "version", current_number(reader));
    waits_check(reader);
    step_post(reader);
    if (is_shown(reader) && reader->on_version != NULL)
        reader->on_version(reader);
}

static void on_stuck(struct muster_publication_fetch *fetch)
{
    struct muster_reader *reader = fetch->owner;

    reader->error = fetch->error;
    step_post(reader);
}

static const struct muster_publication_fetch_events fetch_events = {
    .on_progress = on_progress, .on_done = on_done, .on_stuck = on_stuck};

static void fetch_abandon(struct muster_reader *reader)
{
    if (reader->fetch.held != NULL)
        muster_list_remove(&reader->fetch.held->node);
    muster_publication_fetch_abandon(&reader->fetch);
    if (reader->door != NULL)
        muster_publication_door_progress(reader->door);
}

static void sources_use(struct muster_reader *reader)
{
    struct guide *guide = &reader->guide;

    guide->is_fresh = false;
    for (uint32_t tree = 0; tree < MUSTER_PUBLICATION_TREES; tree++) {
        if (reader->fetch.is_active && reader->fetch.record.version == guide->version)
            muster_publication_fetch_from(&reader->fetch, tree, guide->sources.addresses[tree],
                                          guide->sources.counts[tree]);
    }
}

/* The publisher tells of sources with each version; they are used first. When they have failed it is asked
 * for others, the first time at once. */
static void sources_find(struct muster_reader *reader)
{
    struct guide *guide = &reader->guide;
    uint64_t version = reader->fetch.record.version;

    if (guide->is_fresh && guide->version == version) {
        sources_use(reader);
        return;
    }
    if (guide->is_asked || !guide->is_joined || muster_timer_is_started(&guide->retry))
        return;
    guide->is_asked = true;
    guide->asked_ns = muster_loop_now_ns(reader->env->loop);
    guide_send(reader, MUSTER_PUBLICATION_WHERE, version);
    guide_retry(reader);
}

static bool is_wanted(const struct muster_reader *reader)
{
    return reader->record.version > current_number(reader) &&
           (!reader->fetch.is_active || (reader->record.version > reader->fetch.record.version &&
                                         muster_publication_fetch_is_stuck(&reader->fetch)));
}

/* The publisher is told in a turn after on_version has run: a version that it counts has been seen by the
 * reader's program. */
static void have_tell(struct muster_reader *reader)
{
    struct guide *guide = &reader->guide;

    if (!guide->is_joined || guide->told == current_number(reader))
        return;
    guide->told = current_number(reader);
    guide_send(reader, MUSTER_PUBLICATION_HAVE, guide->told);
}

bool muster_reader_has_told(const struct muster_reader *reader)
{
    const struct guide *guide = &reader->guide;

    return !guide->is_joined || (guide->told == current_number(reader) &&
                                 muster_peer_link_queued_bytes(guide->link) == 0);
}

static void on_step(struct muster_task *task)
{
    struct muster_reader *reader = task->data;

    have_tell(reader);
    if (is_wanted(reader) && !is_full(reader)) {
        fetch_abandon(reader);
        old_versions_drop(reader);
        muster_publication_fetch_start(&reader->fetch, &reader->record, reader->current);
    }
    if (muster_publication_fetch_is_stuck(&reader->fetch))
        sources_find(reader);
}

static enum muster_publication_prospect on_missing(void *owner, uint64_t version)
{
    const struct muster_reader *reader = owner;

    if (version > reader->record.version)
        return MUSTER_PUBLICATION_IS_UNKNOWN;
    if (reader->fetch.is_active && reader->fetch.record.version == version)
        return MUSTER_PUBLICATION_IS_COMING;
    return version == reader->record.version && is_wanted(reader) && !is_full(reader)
               ? MUSTER_PUBLICATION_IS_COMING
               : MUSTER_PUBLICATION_IS_PAST;
}

static bool is_progressing(void *owner)
{
    const struct muster_reader *reader = owner;

    return reader->fetch.is_active &&
           muster_loop_now_ns(reader->env->loop) - reader->fetch.progress_ns <
               MUSTER_PUBLICATION_SILENCE_NS;
}

static const struct muster_publication_door_events door_events = {.on_missing = on_missing,
                                                                  .is_progressing = is_progressing};

/* --- The registry's key --- */

static struct muster_bytes key_bytes(const struct muster_reader *reader)
{
    return (struct muster_bytes){reader->key, strlen(reader->key)};
}

static void record_receive(struct muster_reader *reader, const struct muster_registry_kv *kv)
{
    struct muster_publication_record record;
    struct muster_error error;

    if (muster_publication_record_unpack(kv->value.data, kv->value.size, &record, &error) !=
        MUSTER_OK) {
        MUSTER_LOG(reader->env, WARN, "publication_key_damaged", "key", reader->key, "reason",
                   error.text);
        reader->error = error;
        return;
    }
    reader->record = record;
    guide_follow(reader);
    step_post(reader);
}

static void on_changes(struct muster_registry_watch *watch,
                       const struct muster_registry_change *changes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!changes[i].is_delete) /* a key that is gone takes no version away */
            record_receive(watch->data, &changes[i].kv);
    }
}

static void read_again(struct muster_reader *reader)
{
    muster_timer_start(&reader->read_again, reader->env->loop,
                       muster_loop_after_ns(reader->env->loop, READ_AGAIN_NS));
}

static void on_watch_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    struct muster_reader *reader = watch->data;

    (void)rc;
    read_again(reader);
}

static void on_read(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_reader *reader = op->data;

    if (reader->is_closing)
        return;
    if (rc != MUSTER_OK) {
        muster_error_set(&reader->away, rc, "the registry at %s is away: %.120s", reader->endpoints,
                         op->error.text);
        reader->error = reader->away;
        read_again(reader);
        return;
    }
    if (reader->error.rc != MUSTER_OK && strcmp(reader->error.text, reader->away.text) == 0)
        reader->error.rc = MUSTER_OK;
    reader->away.rc = MUSTER_OK;
    if (op->kv_count > 0)
        record_receive(reader, &op->kvs[0]);
    reader->watch.data = reader;
    if (muster_registry_watch_start(&reader->watch, reader->registry, key_bytes(reader),
                                    MUSTER_REGISTRY_KEY, op->revision + 1, on_changes,
                                    on_watch_end) != MUSTER_OK)
        read_again(reader);
}

static void key_read(struct muster_reader *reader)
{
    const struct muster_registry_range range = {.key = key_bytes(reader),
                                                .reach = MUSTER_REGISTRY_KEY};

    reader->range.data = reader;
    if (muster_registry_range_start(&reader->range, reader->registry, &range,
                                    muster_loop_after_ns(reader->env->loop, REQUEST_TIMEOUT_NS),
                                    on_read) != MUSTER_OK)
        read_again(reader);
}

static void on_read_again(struct muster_timer *timer)
{
    key_read(timer->data);
}

/* --- For the program --- */

void *muster_reader_data(const struct muster_reader *reader)
{
    return reader->data;
}

struct muster_publication_waiter *muster_reader_waiter(struct muster_reader *reader)
{
    return &reader->waiter;
}

struct muster_env *muster_reader_env(const struct muster_reader *reader)
{
    return reader->env;
}

const struct muster_error *muster_reader_error(const struct muster_reader *reader)
{
    return &reader->error;
}

const struct muster_address *muster_reader_address(const struct muster_reader *reader)
{
    return reader->door != NULL ? muster_publication_door_address(reader->door) : NULL;
}

uint64_t muster_reader_newest(const struct muster_reader *reader)
{
    return reader->record.version;
}

const struct muster_version *muster_reader_current(struct muster_reader *reader)
{
    if (!is_shown(reader))
        return NULL;
    reader->current->user_count++;
    return &reader->current->shown;
}

void muster_reader_release(struct muster_reader *reader, const struct muster_version *version)
{
    struct muster_held_version *held = muster_held_find(&reader->versions, version->number);

    MUSTER_ASSERT(held != NULL && &held->shown == version && held->user_count > 0);
    held->user_count--;
    if (held->user_count == 0 && held != reader->current)
        step_post(reader); /* there is room for the next one */
}

void muster_reader_stats(const struct muster_reader *reader, struct muster_reader_stats *ret_stats)
{
    *ret_stats = reader->fetch.stats;
    ret_stats->current = current_number(reader);
    ret_stats->newest = reader->record.version;
    if (reader->door != NULL)
        ret_stats->bytes_sent = muster_publication_door_stats(reader->door)->bytes;
}

/* --- Life --- */

static void reader_free(struct muster_reader *reader)
{
    struct muster_list *node;

    while ((node = muster_list_pop(&reader->versions)) != NULL)
        muster_held_unref(MUSTER_CONTAINER_OF(node, struct muster_held_version, node));
    muster_held_spare_fini(&reader->spare, reader->env->mem);
    muster_mem_free(reader->env->mem, reader);
}

static void on_registry_closed(struct muster_registry *registry)
{
    struct muster_reader *reader = muster_registry_data(registry);

    if (reader->closed != NULL)
        reader->closed(reader);
    reader_free(reader);
}

static void on_door_closed(void *owner)
{
    struct muster_reader *reader = owner;

    muster_registry_close(reader->registry, on_registry_closed);
}

void muster_reader_close(struct muster_reader *reader, muster_reader_fn *closed)
{
    MUSTER_LIST_EACH (&reader->versions, held, struct muster_held_version, node)
        MUSTER_ASSERT(held->user_count == 0);
    muster_publication_meters_close(&reader->meters);
    reader->closed = closed;
    reader->is_closing = true;
    MUSTER_LIST_EACH_SAFE (&reader->waits, op, struct muster_reader_op, node)
        muster_reader_wait_cancel(op);
    muster_task_cancel(&reader->step);
    muster_timer_stop(&reader->read_again);
    muster_timer_stop(&reader->guide.retry);
    muster_registry_watch_stop(&reader->watch);
    guide_drop(reader);
    if (reader->fetch.held != NULL)
        muster_list_remove(&reader->fetch.held->node);
    muster_publication_fetch_fini(&reader->fetch);
    if (reader->door != NULL)
        muster_publication_door_close(reader->door, on_door_closed);
    else
        on_door_closed(reader);
}

static enum muster_rc door_open(struct muster_reader *reader,
                                const struct muster_reader_options *options,
                                struct muster_error *ret_error)
{
    const struct muster_publication_door_options door = {.name = reader->join.name,
                                                         .host_key = reader->join.host_key,
                                                         .hello = &reader->hello,
                                                         .listen = options->listen,
                                                         .authorization = options->authorization,
                                                         .versions = &reader->versions,
                                                         .events = &door_events,
                                                         .owner = reader};
    enum muster_rc rc;

    if (options->listen == NULL)
        return MUSTER_OK;
    rc = muster_publication_door_open(reader->env, &door, &reader->door, ret_error);
    return rc != MUSTER_OK
               ? rc
               : muster_publication_reach_fill(muster_publication_door_address(reader->door),
                                               options->reach, reader->join.address, ret_error);
}

static void reader_init(struct muster_reader *reader, const struct muster_reader_options *options)
{
    const char *job = options->job != NULL ? options->job : "";

    reader->data = options->data;
    reader->min_version = options->min_version;
    snprintf(reader->endpoints, sizeof(reader->endpoints), "%s", options->registry);
    muster_error_set(&reader->away, MUSTER_UNAVAILABLE, "the registry at %s has not answered yet",
                     reader->endpoints);
    muster_list_init(&reader->versions);
    muster_list_init(&reader->waits);
    muster_task_init(&reader->step, on_step, reader);
    muster_timer_init(&reader->read_again, on_read_again, reader);
    muster_timer_init(&reader->guide.retry, on_guide_retry, reader);
    muster_publication_key(job, options->name, reader->key);
    muster_publication_hello_fill(reader->env, job, &reader->hello);
    snprintf(reader->join.name, sizeof(reader->join.name), "%s", options->name);
    if (options->host_key != NULL || reader->env->host != NULL)
        snprintf(reader->join.host_key, sizeof(reader->join.host_key), "%s",
                 options->host_key != NULL ? options->host_key
                                           : muster_host_key(reader->env->host));
    reader->join.reader = reader->hello.incarnation;
    reader->join.is_following = true;
}

static void on_collect(struct muster_metrics_collector *collector)
{
    struct muster_reader *reader = collector->data;
    struct muster_reader_stats stats;

    muster_reader_stats(reader, &stats);
    muster_reader_meters_set(&reader->meters, &stats);
}

enum muster_rc muster_reader_open(struct muster_env *env,
                                  const struct muster_reader_options *options,
                                  muster_reader_fn *on_version, struct muster_reader **ret_reader,
                                  struct muster_error *ret_error)
{
    const struct muster_registry_options registry = {.endpoints = options->registry};
    struct muster_reader *reader;
    enum muster_rc rc = muster_publication_name_check(options->name, ret_error);

    if (rc == MUSTER_OK && options->job != NULL && options->job[0] != '\0')
        rc = muster_job_name_check(options->job, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    reader = muster_mem_alloc_zero(env->mem, 1, sizeof(*reader));
    if (reader == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a reader");
    reader->env = env;
    reader->on_version = on_version;
    reader_init(reader, options);
    rc = muster_registry_open(env, &registry, &reader->registry, ret_error);
    if (rc != MUSTER_OK) {
        muster_mem_free(env->mem, reader);
        return rc;
    }
    muster_registry_set_data(reader->registry, reader);
    rc = door_open(reader, options, ret_error);
    reader->spare.host = reader->door != NULL ? env->host : NULL; /* others may map what it holds */
    reader->fetch.owner = reader;
    reader->fetch.spare = &reader->spare;
    muster_publication_fetch_init(&reader->fetch, env, &reader->hello, &reader->join,
                                  &fetch_events);
    if (rc != MUSTER_OK) {
        muster_reader_close(reader, NULL);
        return rc;
    }
    muster_reader_meters_open(&reader->meters, env, reader->join.name, on_collect, reader);
    key_read(reader);
    *ret_reader = reader;
    return MUSTER_OK;
}
