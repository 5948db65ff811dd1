/* A client of parameters: opening, ways to servers, closing. */
#include "params/client/client_internal.h"

#include <stdio.h>
#include <string.h>

#include "params/wire/frame.h"
#include "params/wire/hash.h"

#define POOL_KEPT_BYTES         ((size_t)64 << 20)
#define QUEUE_MAX_BYTES_DEFAULT ((uint64_t)64 << 20)

/* --- Ways --- */

static void opened_tell(struct muster_params *params, enum muster_rc rc)
{
    muster_params_fn *opened = params->opened;

    muster_timer_stop(&params->opening_deadline);
    params->opened = NULL;
    if (opened != NULL)
        opened(params, rc);
}

/* The first of the ways to primaries that is not open; NULL: all are. */
static const struct muster_params_way *way_missing(const struct muster_params *params)
{
    for (uint32_t shard = 0; shard < params->shard_count; shard++) {
        const struct muster_params_way *way = muster_params_route(params, shard);

        if (way->state != MUSTER_PARAMS_WAY_OPEN)
            return way;
    }
    return NULL;
}

/* The next sequence number of the source is known once all servers have opened it. */
static void params_look(struct muster_params *params)
{
    const struct muster_params_way *missing = way_missing(params);

    params->error = missing != NULL ? missing->error : (struct muster_error){.rc = MUSTER_OK};
    if (params->is_ready || missing != NULL)
        return;
    params->is_ready = true;
    params->position = params->sequence - 1;
    muster_task_post(&params->ask, params->env->loop);
    muster_task_post(&params->flush, params->env->loop);
    opened_tell(params, MUSTER_OK);
}

static void params_fail(struct muster_params *params, const struct muster_error *error)
{
    MUSTER_LOG(params->env, WARN, "params_refused", "server", params->options.server, "reason",
               error->text);
    params->is_failed = true;
    params->error = *error;
    muster_params_ways_end(params);
    muster_params_ops_fail(params, params->error.rc, &params->error);
    opened_tell(params, params->error.rc);
    muster_params_close_check(params);
}

/* Until there is a map, one seed is as good as another. */
static bool seeds_are_left(const struct muster_params *params)
{
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (way != params->nowhere && way->state != MUSTER_PARAMS_WAY_FAILED)
            return true;
    }
    return false;
}

static void on_way_failed(struct muster_params_way *way)
{
    struct muster_params *params = way->params;

    if (params->map != NULL ? !way->is_seed : !seeds_are_left(params)) {
        params_fail(params, &way->error);
        return;
    }
    if (params->map == NULL)
        params->error = way->error;
    MUSTER_LOG(params->env, WARN, "params_seed_refused", "server", way->server, "reason",
               way->error.text);
}

static void on_way_map(struct muster_params_way *way, const void *bytes, size_t size)
{
    struct muster_params *params = way->params;
    struct muster_error error;
    enum muster_rc rc = muster_params_map_take(params, bytes, size, way, &error);

    /* The map comes again over the next link. A server that sends a malformed one does not end a client
     * that has other servers. */
    if (rc == MUSTER_RESOURCE_EXHAUSTED || (rc == MUSTER_INVALID_ARGUMENT && params->map != NULL)) {
        muster_params_way_break(way, &error);
        return;
    }
    if (rc != MUSTER_OK) {
        muster_params_way_fail(way, &error);
        return;
    }
    muster_task_post(&params->look, params->env->loop); /* the way may be gone */
}

static void on_look(struct muster_task *task)
{
    struct muster_params *params = task->data;

    if (params->is_failed || params->map == NULL)
        return;
    MUSTER_LIST_EACH_SAFE (&params->ways, way, struct muster_params_way, node)
        muster_params_way_name(way, muster_params_way_is_home(way));
    muster_params_pushes_expire(params);
    params_look(params);
    muster_task_post(&params->ask, params->env->loop);
}

static void on_way_open(struct muster_params_way *way, const struct muster_params_opened *opened)
{
    struct muster_params *params = way->params;
    struct muster_error error;

    if (!params->is_ready && opened->sequence > params->sequence)
        params->sequence = opened->sequence;
    if (params->source.generation == 0)
        params->source.generation = opened->generation;
    if (params->lease_ns == 0 || opened->lease_s * MUSTER_NS_PER_S < params->lease_ns)
        params->lease_ns = opened->lease_s * MUSTER_NS_PER_S;
    /* The answers name rounds that were closed while the link was lost. */
    MUSTER_LIST_EACH (&params->tables, table, struct muster_params_table, node) {
        if (table->is_by_round && table->index < way->table_count &&
            way->tables[table->index].is_known)
            way->tables[table->index].is_asked = false;
    }
    if (!muster_params_way_tell_all_rounds(way) || !muster_params_tables_ask(way) ||
        !muster_params_way_tick(way)) {
        muster_error_set(&error, MUSTER_UNAVAILABLE, "no memory to open tables at %s", way->server);
        muster_params_way_break(way, &error);
        return;
    }
    muster_params_requests_resend(way);
    muster_params_seeds_drop(params);
    muster_params_marks_send(params);
    on_look(&params->look);
}

/* When no server of the map can be reached, those that the program has named may know a newer one. */
static void on_way_unreached(struct muster_params_way *lost)
{
    struct muster_params *params = lost->params;

    if (params->map == NULL || lost->is_seed)
        return;
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (!way->is_seed &&
            (way->state == MUSTER_PARAMS_WAY_MEETING || way->state == MUSTER_PARAMS_WAY_OPENING ||
             way->state == MUSTER_PARAMS_WAY_OPEN))
            return;
    }
    (void)muster_params_seeds_open(params); /* the next attempt asks those that memory lacks for */
}

static const struct muster_params_way_events way_events = {
    .on_map = on_way_map,
    .on_open = on_way_open,
    .on_failed = on_way_failed,
    .on_frame = muster_params_answer_on_frame,
    .on_payload = muster_params_answer_on_payload,
    .on_lost = muster_params_answer_on_lost,
    .on_acked = muster_params_answer_on_acked,
    .on_unreached = on_way_unreached};

/* --- Opening --- */

static void params_free(struct muster_params *params)
{
    struct muster_env *env = params->env;

    MUSTER_LIST_EACH_SAFE (&params->ways, way, struct muster_params_way, node) {
        muster_params_way_hang_up(way);
        muster_params_requests_free(way);
        muster_params_way_free(way);
    }
    muster_task_cancel(&params->flush); /* a way that held back pushes has posted it */
    muster_params_cutting_drop(params);
    muster_mem_free(env->mem, params->map);
    MUSTER_LIST_EACH_SAFE (&params->tables, table, struct muster_params_table, node) {
        muster_params_rounds_forget(table);
        muster_mem_free(env->mem, table);
    }
    muster_mem_pool_fini(&params->pool);
    muster_mem_free(env->mem, (char *)(uintptr_t)params->options.server);
    muster_mem_free(env->mem, params);
}

/* A way to a primary that is not open, best one that has an error; NULL: all are open, or there is no map. */
static const struct muster_params_way *way_culprit(const struct muster_params *params)
{
    const struct muster_params_way *found = NULL;

    for (uint32_t shard = 0; shard < params->shard_count; shard++) {
        const struct muster_params_way *way = muster_params_route(params, shard);

        if (way->state != MUSTER_PARAMS_WAY_OPEN &&
            (found == NULL || (found->error.rc == MUSTER_OK && way->error.rc != MUSTER_OK)))
            found = way;
    }
    return found;
}

/* A server that answers and has told no map yet; NULL: there is none. */
static const struct muster_params_way *way_without_map(const struct muster_params *params)
{
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node)
        if (params->map == NULL && way->state == MUSTER_PARAMS_WAY_MEETING)
            return way;
    return NULL;
}

static void no_answer_describe(struct muster_params *params)
{
    const struct muster_params_way *way = way_without_map(params);

    if (way != NULL)
        muster_error_set(&params->error, MUSTER_DEADLINE_EXCEEDED,
                         "the server at %s is there, but its job has not begun: it waits for its "
                         "registry, for other servers (--expect) or for its cut, as 'muster params "
                         "inspect' tells",
                         way->server);
    else
        muster_error_set(&params->error, MUSTER_DEADLINE_EXCEEDED,
                         "no answer from the server at %s in time", params->options.server);
}

static void on_opening_deadline(struct muster_timer *timer)
{
    struct muster_params *params = timer->data;
    const struct muster_params_way *missing = way_culprit(params);

    if (missing != NULL && missing != params->nowhere)
        muster_params_way_describe(
            missing, missing->error.rc != MUSTER_OK ? missing->error.rc : MUSTER_DEADLINE_EXCEEDED,
            &params->error);
    else if (params->error.rc == MUSTER_OK)
        no_answer_describe(params);
    opened_tell(params, params->error.rc);
}

/* The id of a named source is a hash of its name: each process of that name has the same. */
static void source_init(struct muster_params *params, const char *name)
{
    muster_rng_fill(params->env->rng, params->hello.incarnation.bytes,
                    sizeof(params->hello.incarnation.bytes));
    memcpy(&params->source.process, params->hello.incarnation.bytes,
           sizeof(params->source.process));
    params->source.process |= 1; /* 0: not known */
    params->source.source = params->hello.incarnation;
    if (name == NULL)
        return;
    snprintf(params->source.name, sizeof(params->source.name), "%s", name);
    params->source.source = muster_params_source_id(name);
}

/* The server drops the link of a source that has another name. */
static bool source_is_valid(const char *name)
{
    char padded[MUSTER_PARAMS_NAME_BYTES] = "";

    snprintf(padded, sizeof(padded), "%s", name);
    return muster_params_name_is_valid(padded);
}

static enum muster_rc options_check(const struct muster_params_options *options,
                                    struct muster_error *ret_error)
{
    if (options->server == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "options->server must be HOST:PORT of a server of parameters");
    if (options->source != NULL &&
        (options->source[0] == '\0' || strlen(options->source) >= MUSTER_PARAMS_NAME_BYTES))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "options->source must have 1 to %u bytes, got %zu",
                                MUSTER_PARAMS_NAME_BYTES - 1, strlen(options->source));
    if (options->source != NULL && !source_is_valid(options->source))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "options->source must be UTF-8 without control characters");
    return options->job != NULL && options->job[0] != '\0'
               ? muster_job_name_check(options->job, ret_error)
               : MUSTER_OK;
}

static bool nowhere_open(struct muster_params *params)
{
    params->nowhere = muster_params_way_new(params, NULL, NULL, "no server");
    if (params->nowhere == NULL)
        return false;
    muster_error_set(&params->nowhere->error, MUSTER_UNAVAILABLE, "some shards have no server now");
    return true;
}

static void params_init(struct muster_params *params, struct muster_env *env,
                        const struct muster_params_options *options, muster_params_fn *opened)
{
    params->env = env;
    params->data = options->data;
    params->opened = opened;
    params->options.queue_max_bytes =
        options->queue_max_bytes > 0 ? options->queue_max_bytes : QUEUE_MAX_BYTES_DEFAULT;
    params->hello.version = MUSTER_PEER_VERSION;
    params->hello.purpose = MUSTER_LINK_PARAMS;
    snprintf(params->hello.job, sizeof(params->hello.job), "%s",
             options->job != NULL ? options->job : "");
    source_init(params, options->source);
    params->sequence = params->number = 1;
    muster_mem_pool_init(&params->pool, env->mem, POOL_KEPT_BYTES);
    muster_list_init(&params->tables);
    muster_list_init(&params->ops);
    muster_list_init(&params->ticks);
    params->options.clock_sources = options->clock_sources;
    params->options.no_host_memory = options->no_host_memory;
    muster_list_init(&params->ways);
    params->way_events = &way_events;
    muster_task_init(&params->look, on_look, params);
    muster_task_init(&params->ask, muster_params_tables_on_ask, params);
    muster_task_init(&params->flush, muster_params_on_flush, params);
    muster_timer_init(&params->deadline, muster_params_on_op_deadline, params);
    muster_timer_init(&params->opening_deadline, on_opening_deadline, params);
}

enum muster_rc muster_params_open(struct muster_env *env,
                                  const struct muster_params_options *options,
                                  muster_params_fn *opened, struct muster_params **ret_params,
                                  struct muster_error *ret_error)
{
    return muster_params_open_home(env, options, NULL, opened, ret_params, ret_error);
}

enum muster_rc muster_params_open_home(struct muster_env *env,
                                       const struct muster_params_options *options,
                                       const struct muster_params_home *home,
                                       muster_params_fn *opened, struct muster_params **ret_params,
                                       struct muster_error *ret_error)
{
    struct muster_params *params;
    enum muster_rc rc = options_check(options, ret_error);
    char *server;

    if (rc == MUSTER_OK)
        rc = muster_params_seeds_check(options->server, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    params = muster_mem_alloc_zero(env->mem, 1, sizeof(*params));
    server = muster_mem_strdup(env->mem, options->server);
    if (params == NULL || server == NULL) {
        muster_mem_free(env->mem, params);
        muster_mem_free(env->mem, server);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a client");
    }
    params_init(params, env, options, opened);
    params->options.server = server;
    params->home = home;
    if (!nowhere_open(params) || !muster_params_seeds_open(params)) {
        params_free(params);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a client");
    }
    muster_timer_start(&params->opening_deadline, env->loop, options->connect_deadline_ns);
    *ret_params = params;
    return MUSTER_OK;
}

void *muster_params_data(const struct muster_params *params)
{
    return params->data;
}

const struct muster_error *muster_params_error(const struct muster_params *params)
{
    return &params->error;
}

uint64_t muster_params_source_position(const struct muster_params *params)
{
    return params->position;
}

uint32_t muster_params_short_shards(const struct muster_params *params)
{
    uint32_t count = 0;

    for (uint32_t shard = 0; shard < params->shard_count; shard++)
        count += params->map->shards[shard].copy_count < params->map->copies_wanted;
    return count;
}

/* --- Closing --- */

static void on_closed(struct muster_task *task)
{
    struct muster_params *params = task->data;
    enum muster_rc rc = params->push_count == 0 ? MUSTER_OK : MUSTER_DEADLINE_EXCEEDED;
    struct muster_error error;

    params->is_closed = true;
    muster_error_set(&error, MUSTER_CANCELLED, "the client was closed");
    muster_params_ops_fail(params, MUSTER_CANCELLED, &error);
    muster_timer_stop(&params->closing_deadline);
    muster_timer_stop(&params->deadline);
    muster_task_cancel(&params->flush);
    muster_task_cancel(&params->look);
    muster_task_cancel(&params->ask);
    if (params->closed != NULL)
        params->closed(params, rc);
    params_free(params);
}

static void on_closing_deadline(struct muster_timer *timer)
{
    struct muster_params *params = timer->data;

    muster_task_post(&params->tell, params->env->loop);
}

void muster_params_close(struct muster_params *params, uint64_t deadline_ns,
                         muster_params_fn *closed)
{
    MUSTER_ASSERT(!params->is_closing);
    params->is_closing = true;
    params->opened = NULL;
    params->closed = closed;
    muster_timer_stop(&params->opening_deadline);
    muster_task_init(&params->tell, on_closed, params);
    muster_timer_init(&params->closing_deadline, on_closing_deadline, params);
    muster_timer_start(&params->closing_deadline, params->env->loop, deadline_ns);
    MUSTER_LIST_EACH (&params->ops, op, struct muster_params_op, node)
        if (!op->is_push)
            muster_params_op_cancel(op);
    muster_params_close_check(params);
}
