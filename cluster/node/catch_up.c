/* The fetching side of state catch-up. Ask every member for its manifest; when those agree that must have
 * the state, fetch what differs from all of them in parallel: a faster member gets more requests. A member
 * that fails hands its open requests back. On one host the members' memory is read instead. Bytes are
 * written straight into the tensors and checked there; until the end the state is worthless, and the
 * program does not touch it. */
#include "cluster/node/catch_up.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cluster/node/catch_up_internal.h"

/* 16 MiB take a few milliseconds; the loop goes on between two slices. */
#define COMPARE_CHUNKS_A_TURN 64
/* Ahead of the admission 1 GiB/s: the members train meanwhile. */
#define AHEAD_CHUNKS_A_TICK 4
#define AHEAD_TICK_NS       MUSTER_NS_PER_MS
#define LOG_PATIENCE_NS     (10 * MUSTER_NS_PER_S)

/* --- the end --- */

static void free_fetch(struct fetch *fetch)
{
    struct muster_mem *mem = fetch->env->mem;

    muster_timer_stop(&fetch->timer);
    muster_timer_stop(&fetch->pace_timer);
    for (size_t i = 0; i < fetch->source_count; i++)
        muster_fetch_source_fini(&fetch->sources[i]);
    muster_fetch_memory_fini(fetch);
    muster_fetch_hashes_fini(fetch);
    muster_mem_free(mem, fetch->sources);
    muster_mem_free(mem, fetch->missing);
    muster_mem_free(mem, fetch);
}

/* The owner is the last thing that is touched: its callback may start the next catch-up or free it. */
static void announce_end(struct fetch *fetch)
{
    struct muster_catch_up *owner = fetch->owner;
    enum muster_rc rc = fetch->error.rc;

    MUSTER_ASSERT(fetch->is_finished);
    owner->error = fetch->error;
    owner->impl = NULL;
    owner->sources = 0;
    owner->blobs = NULL;
    owner->blob_count = 0;
    if (rc == MUSTER_OK && !fetch->is_ahead) {
        owner->blobs = fetch->blobs;
        owner->blob_count = fetch->blob_count;
        fetch->blobs = NULL;
    }
    for (size_t i = 0; i < fetch->source_count; i++)
        owner->sources += fetch->sources[i].has_answered;
    free_fetch(fetch);
    owner->done(owner, rc);
}

/* --- fetching --- */

/* True: one more chunk may be asked for now. */
static bool take_pace(struct fetch *fetch)
{
    if (!fetch->is_ahead)
        return true;
    if (!muster_timer_is_started(&fetch->pace_timer)) {
        fetch->pace_count = AHEAD_CHUNKS_A_TICK;
        muster_timer_start(&fetch->pace_timer, fetch->env->loop,
                           muster_loop_after_ns(fetch->env->loop, AHEAD_TICK_NS));
    }
    if (fetch->pace_count == 0)
        return false;
    fetch->pace_count--;
    return true;
}

static bool is_served_by_another(const struct fetch *fetch, const struct fetch_source *except)
{
    for (size_t i = 0; i < fetch->source_count; i++)
        if (&fetch->sources[i] != except && fetch->sources[i].state == FETCH_SOURCE_AGREES)
            return true;
    return muster_fetch_hashes_are_in_question(fetch);
}

/* A chunk whose hash only this source has told is fetched from another one: so two members are compared. */
static bool may_serve_next(const struct fetch *fetch, const struct fetch_source *source)
{
    uint32_t chunk = fetch->missing[fetch->missing_count - 1];

    if (fetch->is_ahead)
        return true;
    return !muster_fetch_has_memory(fetch) &&
           (fetch->hashed_by[chunk] != (uint32_t)(source - fetch->sources) ||
            !is_served_by_another(fetch, source));
}

/* One per member in turn. */
static void ask_for_missing(struct fetch *fetch)
{
    uint32_t open_max = fetch->is_ahead ? MUSTER_FETCH_AHEAD_MAX : MUSTER_FETCH_REQUESTS_MAX;
    bool has_room = true;

    while (fetch->missing_count > 0 && has_room) {
        has_room = false;
        for (size_t i = 0; i < fetch->source_count && fetch->missing_count > 0; i++) {
            struct fetch_source *source = &fetch->sources[i];

            if (source->state != FETCH_SOURCE_AGREES || source->open_count == open_max ||
                !may_serve_next(fetch, source))
                continue;
            if (!take_pace(fetch))
                return;
            muster_fetch_source_ask_chunk(source, fetch->missing[--fetch->missing_count]);
            has_room = true;
        }
    }
}

/* Finish when nothing is missing and nothing under way. */
static void hand_out(struct fetch *fetch)
{
    ask_for_missing(fetch);
    if (muster_fetch_can_read(fetch))
        muster_task_post(&fetch->task, fetch->env->loop);
    if (fetch->missing_count == 0 && fetch->open_count == 0 && fetch->reading_count == 0 &&
        fetch->compared == fetch->chunks->chunk_count)
        muster_fetch_finish(fetch, MUSTER_OK, "%s", "");
}

/* Ahead of the admission chunks are passed over that the members change. Where nothing can be fetched ahead the own
 * memory is hashed, so that it need not be while the members wait. */
static bool is_missing(struct fetch *fetch, uint32_t chunk)
{
    if (!fetch->has_hashes) {
        (void)muster_state_hashes_get(fetch->chunks, chunk);
        return false;
    }
    if (fetch->is_ahead && !muster_fetch_hashes_is_known(fetch, chunk))
        return fetch->is_first;
    return memcmp(muster_state_hashes_get(fetch->chunks, chunk), fetch->hashes[chunk],
                  MUSTER_HASH128_BYTES) != 0;
}

/* Compare a slice of our memory with the members' hashes; what differs is missing. */
static void compare_slice(struct fetch *fetch)
{
    uint32_t count = fetch->chunks->chunk_count;

    MUSTER_ASSERT(fetch->is_agreed && (fetch->is_ahead || fetch->has_hashes));
    for (uint32_t hashed = 0; hashed < COMPARE_CHUNKS_A_TURN && fetch->compared < count;) {
        uint32_t chunk = fetch->compared++;

        hashed += !muster_state_hashes_is_known(fetch->chunks, chunk);
        if (is_missing(fetch, chunk))
            fetch->missing[fetch->missing_count++] = chunk;
    }
    if (fetch->compared < count)
        muster_task_post(&fetch->task, fetch->env->loop);
    hand_out(fetch);
}

static void on_pace(struct muster_timer *timer)
{
    struct fetch *fetch = timer->data;

    if (!fetch->is_finished)
        hand_out(fetch);
}

static void on_task(struct muster_task *task)
{
    struct fetch *fetch = task->data;

    if (!fetch->is_finished)
        muster_fetch_read_memory(fetch);
    if (fetch->is_finished)
        announce_end(fetch);
    else
        compare_slice(fetch);
}

/* --- agreement --- */

static bool is_pending(const struct fetch_source *source)
{
    return source->state == FETCH_SOURCE_CLOSED || source->state == FETCH_SOURCE_ASKED;
}

/* All that have answered: the hashes are void, or not complete. */
static void ask_again(struct fetch *fetch)
{
    muster_fetch_hashes_forget(fetch);
    for (size_t i = 0; i < fetch->source_count; i++)
        if (fetch->sources[i].state == FETCH_SOURCE_AGREES)
            muster_fetch_source_ask_again(&fetch->sources[i]);
}

static void tell_difference(struct fetch *fetch)
{
    size_t other = fetch->differing[1];

    muster_fetch_finish(fetch, MUSTER_DATA_LOSS, "%s and %s hold different bytes of state %" PRIu64,
                        fetch->sources[fetch->differing[0]].name,
                        other < fetch->source_count ? fetch->sources[other].name : "others",
                        fetch->step);
}

/* Every member that must have the state has answered, and the answers must agree: a difference means that
 * members have computed different states, which nobody may hide by choosing one. Another joiner is not
 * waited for, because it may be waiting for this one. */
static void check_agreement(struct fetch *fetch)
{
    bool has_answer = false;

    for (size_t i = 0; i < fetch->source_count; i++) {
        const struct fetch_source *source = &fetch->sources[i];

        if (!fetch->is_agreed && source->is_elder && is_pending(source))
            return;
        has_answer = has_answer || source->state == FETCH_SOURCE_AGREES;
    }
    if (fetch->has_difference) {
        tell_difference(fetch);
        return;
    }
    if (!has_answer || fetch->is_agreed)
        return;
    if (!muster_fetch_hashes_is_whole(fetch)) { /* a member is gone that was to hash a part */
        ask_again(fetch);
        return;
    }
    fetch->is_agreed = true;
    muster_task_post(&fetch->task, fetch->env->loop);
}

/* DATA_LOSS is kept, because joining again would not mend it; any other end is UNAVAILABLE, and the process
 * joins again. */
static void give_up(struct fetch *fetch, const struct fetch_source *last)
{
    enum muster_rc rc = last != NULL ? last->error.rc : MUSTER_UNAVAILABLE;

    muster_fetch_finish(fetch, rc == MUSTER_DATA_LOSS ? rc : MUSTER_UNAVAILABLE,
                        "no member is left that has state %" PRIu64 "%s%s", fetch->step,
                        last != NULL ? ": " : "", last != NULL ? last->error.text : "");
}

/* The state is lost when no member that had it is left, and none of the others has fetched it. A refusal by
 * an elder before all have agreed says that the members went on without this process: what the others still
 * serve would be a mixture. */
static void check_sources_left(struct fetch *fetch)
{
    const struct fetch_source *last = NULL, *refused = NULL;
    bool has_source = false, has_pending = false;

    for (size_t i = 0; i < fetch->source_count; i++) {
        const struct fetch_source *source = &fetch->sources[i];

        has_source = has_source || source->state == FETCH_SOURCE_AGREES ||
                     (source->is_elder && is_pending(source));
        has_pending = has_pending || is_pending(source);
        if (source->state == FETCH_SOURCE_REFUSED)
            refused = source;
        else if (source->error.rc != MUSTER_OK)
            last = source;
    }
    if (refused != NULL && (!has_source || (!fetch->is_agreed && refused->is_elder)))
        give_up(fetch, refused);
    else if (!has_source && !has_pending)
        give_up(fetch, last);
}

/* --- time --- */

static const char *why_not(const struct fetch_source *source)
{
    if (source->error.text[0] != '\0')
        return source->error.text;
    if (source->state == FETCH_SOURCE_ASKED)
        return "it has not committed that step, or does not answer";
    return "its bytes are too slow";
}

/* Said again and again: a member that does not commit keeps all joiners waiting. */
static void log_wait(struct fetch *fetch)
{
    for (size_t i = 0; i < fetch->source_count; i++) {
        const struct fetch_source *source = &fetch->sources[i];

        if (!is_pending(source) && source->open_count == 0)
            continue;
        MUSTER_LOG(fetch->env, WARN, "catch_up_waits", "waits_for", source->name, "state",
                   fetch->step, "reason", why_not(source));
        return;
    }
}

static void on_deadline(struct fetch *fetch)
{
    for (size_t i = 0; i < fetch->source_count; i++) {
        const struct fetch_source *source = &fetch->sources[i];

        if (is_pending(source) || source->open_count > 0)
            muster_fetch_finish(fetch, MUSTER_DEADLINE_EXCEEDED,
                                "%s did not send state %" PRIu64 " in time: %s", source->name,
                                fetch->step, why_not(source));
    }
    muster_fetch_finish(fetch, MUSTER_DEADLINE_EXCEEDED, "state %" PRIu64 " did not arrive in time",
                        fetch->step);
}

static void set_timer(struct fetch *fetch)
{
    uint64_t due_ns =
        fetch->deadline_ns < fetch->log_due_ns ? fetch->deadline_ns : fetch->log_due_ns;

    for (size_t i = 0; i < fetch->source_count; i++) {
        if (fetch->sources[i].is_broken)
            due_ns = 0;
        if (fetch->sources[i].state == FETCH_SOURCE_CLOSED && fetch->sources[i].due_ns < due_ns)
            due_ns = fetch->sources[i].due_ns;
    }
    muster_timer_start(&fetch->timer, fetch->env->loop, due_ns);
}

static void give_up_broken(struct fetch *fetch)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_UNAVAILABLE, "no memory for its frames");
    for (size_t i = 0; i < fetch->source_count && !fetch->is_finished; i++)
        if (fetch->sources[i].is_broken)
            muster_fetch_source_try_later(&fetch->sources[i], &error);
}

static void on_timer(struct muster_timer *timer)
{
    struct fetch *fetch = timer->data;
    uint64_t now_ns = muster_loop_now_ns(fetch->env->loop);

    if (now_ns >= fetch->deadline_ns) {
        on_deadline(fetch);
        return;
    }
    give_up_broken(fetch);
    if (fetch->is_finished)
        return;
    if (now_ns >= fetch->log_due_ns) {
        fetch->log_due_ns = now_ns + LOG_PATIENCE_NS;
        log_wait(fetch);
    }
    for (size_t i = 0; i < fetch->source_count; i++)
        if (fetch->sources[i].state == FETCH_SOURCE_CLOSED && now_ns >= fetch->sources[i].due_ns)
            muster_fetch_source_open(&fetch->sources[i]);
    set_timer(fetch);
}

/* The first member that answers says what is there; the others help as soon as they answer, too. Without any only the
 * own memory is hashed. */
static void settle_ahead(struct fetch *fetch)
{
    bool has_source = false, has_pending = false;

    if (fetch->is_finished)
        return;
    for (size_t i = 0; i < fetch->source_count; i++) {
        has_source = has_source || fetch->sources[i].state == FETCH_SOURCE_AGREES;
        has_pending = has_pending || is_pending(&fetch->sources[i]);
    }
    if (!has_source && !has_pending && fetch->is_agreed && fetch->has_hashes)
        muster_fetch_finish(fetch, MUSTER_OK, "%s", "");
    if (!fetch->is_agreed && (has_source || !has_pending)) {
        fetch->is_agreed = true;
        muster_task_post(&fetch->task, fetch->env->loop);
    }
    if (fetch->is_agreed)
        hand_out(fetch);
    set_timer(fetch);
}

static void settle_fetch(struct fetch *fetch)
{
    if (fetch->is_finished)
        return;
    check_agreement(fetch);
    if (fetch->is_agreed)
        hand_out(fetch);
    check_sources_left(fetch);
    set_timer(fetch);
}

/* --- start --- */

static void add_sources(struct fetch *fetch, const struct muster_view *view)
{
    for (uint32_t i = 0; i < view->member_count; i++)
        if (!muster_incarnation_is_equal(&view->members[i].incarnation, &fetch->hello.incarnation))
            muster_fetch_source_init(&fetch->sources[fetch->source_count++], fetch,
                                     &view->members[i]);
}

enum muster_rc muster_catch_up_start(struct muster_catch_up *catch_up,
                                     const struct muster_catch_up_options *options,
                                     muster_catch_up_fn *done)
{
    struct muster_mem *mem = options->env->mem;
    struct fetch *fetch = muster_mem_alloc_zero(mem, 1, sizeof(*fetch));

    if (fetch == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    fetch->env = options->env;
    fetch->is_ahead = options->step == MUSTER_STATE_STABLE;
    fetch->is_first = options->is_first;
    fetch->on_changed = fetch->is_ahead ? settle_ahead : settle_fetch;
    fetch->owner = catch_up;
    fetch->chunks = options->chunks;
    fetch->hello = options->hello;
    fetch->board = options->board;
    fetch->step = options->step;
    fetch->epoch = options->view->epoch;
    fetch->deadline_ns = options->deadline_ns;
    fetch->log_due_ns = muster_loop_after_ns(fetch->env->loop, LOG_PATIENCE_NS);
    muster_task_init(&fetch->task, on_task, fetch);
    muster_timer_init(&fetch->timer, on_timer, fetch);
    muster_timer_init(&fetch->pace_timer, on_pace, fetch);
    fetch->sources =
        muster_mem_alloc_zero(mem, options->view->member_count, sizeof(*fetch->sources));
    fetch->missing =
        muster_mem_alloc_zero(mem, (size_t)fetch->chunks->chunk_count + 1, sizeof(uint32_t));
    if (fetch->sources == NULL || fetch->missing == NULL ||
        muster_fetch_hashes_init(fetch) != MUSTER_OK) {
        free_fetch(fetch);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    catch_up->done = done;
    catch_up->impl = fetch;
    catch_up->bytes_fetched = catch_up->bytes_read = 0;
    add_sources(fetch, options->view);
    muster_fetch_hashes_divide(fetch);
    for (size_t i = 0; i < fetch->source_count; i++)
        muster_fetch_source_open(&fetch->sources[i]);
    fetch->on_changed(fetch); /* without a source it ends in the next turn */
    return MUSTER_OK;
}

/* A source that has told hashes may have delivered results that the view without it aborted for the others.
 * New members are no sources: they have the state later than this process, if at all. */
void muster_catch_up_follow(struct muster_catch_up *catch_up, const struct muster_view *view)
{
    struct fetch *fetch = catch_up->impl;
    struct muster_error error;
    bool is_void = false;

    if (fetch == NULL || fetch->is_finished)
        return;
    fetch->epoch = view->epoch;
    for (size_t i = 0; i < fetch->source_count; i++) {
        struct fetch_source *source = &fetch->sources[i];

        if (source->state == FETCH_SOURCE_GONE ||
            muster_view_find(view, &source->incarnation, NULL))
            continue;
        is_void = is_void || source->has_answered;
        muster_error_set(&error, MUSTER_UNAVAILABLE, "%s is not a member of view %" PRIu64,
                         source->name, view->epoch);
        muster_fetch_source_end(source, FETCH_SOURCE_GONE, &error);
    }
    if (!fetch->is_agreed && is_void)
        ask_again(fetch);
    fetch->on_changed(fetch);
}

void muster_catch_up_cancel(struct muster_catch_up *catch_up)
{
    if (catch_up->impl != NULL)
        muster_fetch_finish(catch_up->impl, MUSTER_CANCELLED, "cancelled");
}
