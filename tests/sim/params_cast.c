/* Clients of parameters that push and pull at random. */
#include "tests/sim/params_cast.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "params/client/client_internal.h"
#include "tests/sim/params_cuts.h"
#include "tests/sim/params_turnover.h"
#include "tests/sim/sim_internal.h"

#define ROWS_PER_OP 6u
/* The queue is checked by the rows of a turn; their messages have heads, too. */
#define QUEUE_HEADS_BYTES                                                                          \
    (3 * sizeof(struct muster_params_request) +                                                    \
     (PARAMS_SLOTS + PARAMS_FEW_PUSHED) * sizeof(struct muster_params_part))
#define CUT_RARITY  8u /* acts of source 0 between its cuts */
#define CLOSE_NS    (30 * MUSTER_NS_PER_S)
#define PATIENCE_NS (3600 * MUSTER_NS_PER_S)

uint64_t params_cast_draw(struct params_cast *cast, uint64_t bound)
{
    return muster_rng_below(sim_world_rng(cast->world), bound);
}

/* NULL: its process is dead, or has not begun. */
static struct params_client *client_of(const struct params_life *life)
{
    return sim_node_program(life->node);
}

static uint64_t client_draw(struct params_client *client, uint64_t bound)
{
    return muster_rng_below(client->env->rng, bound);
}

/* --- Operations --- */

bool params_life_may_be_refused(const struct params_life *life)
{
    return life->is_superseded || life->is_contested;
}

static bool act_pushes(enum params_act act)
{
    return act == PARAMS_PUSH || act == PARAMS_PUSH_PULL;
}

static bool end_is_allowed(const struct params_slot *slot, enum muster_rc rc)
{
    if (rc == MUSTER_CANCELLED)
        return slot->is_cancelled;
    if (rc == MUSTER_DEADLINE_EXCEEDED)
        return slot->is_hasty;
    if (rc == MUSTER_ABORTED)
        return params_life_may_be_refused(slot->client->life);
    if (rc == MUSTER_FAILED_PRECONDITION) /* the push that a shard lacks was refused elsewhere */
        return act_pushes(slot->act) && slot->client->life->is_superseded;
    return rc == MUSTER_OK;
}

static const char *act_name(enum params_act act)
{
    static const char *const names[] = {"pull", "push", "push_pull", "tick"};

    return names[act];
}

static bool act_pulls(enum params_act act)
{
    return act == PARAMS_PULL || act == PARAMS_PUSH_PULL;
}

static void on_end(struct muster_params_op *op, enum muster_rc rc)
{
    struct params_slot *slot = op->data;
    struct params_client *client = slot->client;
    struct params_cast *cast = client->life->cast;

    sim_note(cast->world, act_pushes(slot->act) ? "push_end" : "pull_end",
             client->life->source->element, (uint64_t)(slot - client->slots), (uint64_t)rc);
    if (!slot->is_busy) {
        sim_fail(cast->world, "%s: an operation has ended twice", client->life->name);
        return;
    }
    slot->is_busy = false;
    client->busy_count--;
    cast->op_count++;
    if (!end_is_allowed(slot, rc))
        sim_fail(cast->world, "%s: a %s ended with %s: %s", client->life->name, act_name(slot->act),
                 muster_rc_text(rc), op->error.text);
    if (act_pushes(slot->act))
        params_books_pushed(slot, rc);
    if (rc == MUSTER_OK && slot->act == PARAMS_PULL && slot->clock > 0)
        params_books_waited(slot);
    if (rc == MUSTER_OK && act_pulls(slot->act))
        params_books_pulled(slot);
    client->has_looked |= slot->is_last;
}

static struct params_slot *slot_take(struct params_client *client)
{
    for (uint32_t i = 0; i < PARAMS_SLOTS; i++) {
        struct params_slot *slot = &client->slots[i];

        if (slot->is_busy)
            continue;
        memset(slot, 0, sizeof(*slot));
        slot->client = client;
        slot->op.data = slot;
        return slot;
    }
    return NULL;
}

uint64_t params_cast_key(uint32_t row)
{
    return (row + 1) * UINT64_C(0x9E3779B97F4A7C15);
}

static void slot_add_row(struct params_slot *slot, uint32_t row)
{
    slot->rows[slot->count] = row;
    slot->keys[slot->count++] = params_cast_key(row);
}

static enum muster_rc slot_start(struct params_slot *slot)
{
    struct params_client *client = slot->client;
    struct muster_params_rows rows = {
        .keys = slot->keys, .values = slot->values, .count = slot->count};
    uint64_t wait_ns =
        slot->is_hasty ? 1 + client_draw(client, 20 * MUSTER_NS_PER_MS) : PATIENCE_NS;
    uint64_t deadline_ns = muster_loop_after_ns(client->env->loop, wait_ns);

    switch (slot->act) {
    case PARAMS_PUSH:
        return muster_params_push_start(&slot->op, client->table, &rows, deadline_ns, on_end);
    case PARAMS_PUSH_PULL:
        return muster_params_push_pull_start(&slot->op, client->table, &rows, slot->values,
                                             deadline_ns, on_end);
    case PARAMS_TICK:
        return muster_params_tick_start(&slot->op, client->params, slot->clock, deadline_ns,
                                        on_end);
    case PARAMS_PULL:
    default:
        return slot->clock > 0
                   ? muster_params_pull_after_start(&slot->op, client->table, &rows, slot->clock,
                                                    deadline_ns, on_end)
                   : muster_params_pull_start(&slot->op, client->table, &rows, deadline_ns, on_end);
    }
}

static void slot_begin(struct params_slot *slot)
{
    struct params_client *client = slot->client;
    struct params_life *life = client->life;
    enum muster_rc rc;

    slot->is_fenced = life->is_fenced;
    for (uint32_t i = 0; i < slot->count && act_pushes(slot->act); i++)
        slot->values[i * life->cast->source_count + life->source->element] = 1;
    rc = slot_start(slot);
    if (rc == MUSTER_FAILED_PRECONDITION && params_life_may_be_refused(life))
        client->is_refused = true;
    else if (rc != MUSTER_OK && !(rc == MUSTER_RESOURCE_EXHAUSTED && act_pushes(slot->act)))
        sim_fail(life->cast->world, "%s: a %s is refused: %s", life->name, act_name(slot->act),
                 muster_rc_text(rc));
    if (rc != MUSTER_OK)
        return;
    slot->is_busy = true;
    client->busy_count++;
    if (act_pushes(slot->act))
        params_books_push(slot);
    for (uint32_t i = 0; i < slot->count && act_pulls(slot->act); i++)
        params_books_expect(slot, i);
}

/* The clocks that a pull waits for: its own, but for its bound of staleness. */
static uint64_t clock_draw(struct params_client *client)
{
    uint64_t staleness = client_draw(client, PARAMS_STALENESS_MAX + 1);
    uint64_t step = client->life->step;

    return step > staleness ? step - staleness : 0;
}

static bool client_is_marooned(const struct params_client *client)
{
    const struct params_life *life = client->life;

    return life->cast->marooned != NULL && sim_node_host(life->node) == life->cast->marooned;
}

/* One row, of a server that it may reach, and no long wait where it does not. */
static void slot_draw_marooned(struct params_slot *slot)
{
    slot->act = PARAMS_PULL;
    slot->is_hasty = true;
    slot_add_row(slot, (uint32_t)client_draw(slot->client, PARAMS_ROWS));
}

static void slot_draw(struct params_slot *slot)
{
    struct params_client *client = slot->client;
    bool is_ticking = client->life->cast->is_ticking;

    slot->act = client_draw(client, 3) == 0   ? PARAMS_PULL
                : client_draw(client, 6) == 0 ? PARAMS_PUSH_PULL
                                              : PARAMS_PUSH;
    slot->is_hasty = client_draw(client, 50) == 0;
    slot->clock = client->life->step;
    if (slot->act == PARAMS_PULL)
        slot->clock = is_ticking && client_draw(client, 2) == 0 ? clock_draw(client) : 0;
    for (uint32_t i = 0, rows = 1 + (uint32_t)client_draw(client, ROWS_PER_OP); i < rows; i++)
        slot_add_row(slot, (uint32_t)client_draw(client, PARAMS_ROWS));
}

/* One slot is kept for what ends in time: the last look, or a pull of a marooned client. */
static void client_begin(struct params_client *client)
{
    bool is_marooned = client_is_marooned(client);
    struct params_slot *slot =
        client->busy_count + !is_marooned < PARAMS_SLOTS ? slot_take(client) : NULL;

    if (slot == NULL)
        return;
    if (is_marooned)
        slot_draw_marooned(slot);
    else
        slot_draw(slot);
    slot_begin(slot);
}

static void client_tick(struct params_client *client, uint64_t clock)
{
    struct params_life *life = client->life;
    struct params_slot *slot = slot_take(client);

    if (slot == NULL || life->is_superseded)
        return;
    slot->act = PARAMS_TICK;
    slot->clock = life->source->ticked = life->step = clock;
    slot_begin(slot);
}

/* It is not waited for any more. */
static void client_retire(struct params_client *client)
{
    if (!client->life->cast->is_ticking || client->has_retired || client->is_refused)
        return;
    client->has_retired = true;
    client_tick(client, MUSTER_PARAMS_CLOCK_DONE);
}

static void client_cancel(struct params_client *client)
{
    struct params_slot *slot = &client->slots[client_draw(client, PARAMS_SLOTS)];

    if (!slot->is_busy)
        return;
    slot->is_cancelled = true;
    muster_params_op_cancel(&slot->op);
}

static void on_act(struct muster_timer *timer)
{
    struct params_client *client = timer->data;

    if (client->life->cast->is_ending || client->is_refused)
        return;
    for (uint64_t i = client_draw(client, 6); i > 0; i--)
        client_begin(client);
    if (client->life->cast->is_turning)
        params_turnover_act(client);
    if (client_draw(client, 60) == 0)
        client_cancel(client);
    if (client->life->cast->is_ticking && client->life->step + 1 < PARAMS_STEPS_MAX &&
        client->busy_count + 1 < PARAMS_SLOTS && client_draw(client, 3) == 0)
        client_tick(client, client->life->step + 1);
    if (client->life->cast->cuts != NULL && client->life->source->element == 0 &&
        client_draw(client, CUT_RARITY) == 0)
        params_cuts_begin(client->life->cast->cuts, client);
    muster_timer_start(
        timer, client->env->loop,
        muster_loop_after_ns(client->env->loop,
                             1 + client_draw(client, client->life->cast->act_max_ns)));
}

/* --- A client's process --- */

static void on_table(struct muster_params_op *op, enum muster_rc rc)
{
    struct params_client *client = op->data;

    client->is_ready = true;
    if (rc != MUSTER_OK && params_life_may_be_refused(client->life))
        client->is_refused = true;
    else if (rc != MUSTER_OK)
        sim_fail(client->life->cast->world, "%s: its table does not open: %s", client->life->name,
                 op->error.text);
    else if (client->life->cast->is_ending)
        client_retire(client);
    else {
        if (client->life->cast->is_ticking && client->life->step > 0)
            client_tick(client, client->life->step); /* pushes before a tick are of no step */
        if (client->life->cast->is_turning)
            params_turnover_open(client);
        muster_timer_start(&client->timer, client->env->loop,
                           muster_loop_now_ns(client->env->loop));
    }
}

/* From now on older processes of its name are refused. */
static void lives_fence(const struct params_life *newest)
{
    MUSTER_LIST_EACH (&newest->cast->lives, life, struct params_life, link)
        if (life->source == newest->source && life != newest && newest->source->is_named &&
            newest->source->life == newest)
            life->is_fenced = true;
}

static void on_opened(struct muster_params *params, enum muster_rc rc)
{
    struct params_client *client = muster_params_data(params);
    struct params_life *life = client->life;
    struct muster_params_schema schema = {.name = "counts",
                                          .row_elements = life->cast->source_count,
                                          .wire_dtype = MUSTER_F32,
                                          .optimizer = MUSTER_PARAMS_ADD,
                                          .admit_share = life->cast->admit_share};

    if (rc == MUSTER_OK) {
        life->was_opened = true;
        lives_fence(life);
        client->table_op.data = client;
        rc = muster_params_table_start(&client->table_op, params, &schema, &client->table,
                                       muster_loop_after_ns(client->env->loop, PATIENCE_NS),
                                       on_table);
    }
    if (rc == MUSTER_OK)
        return;
    client->is_ready = client->is_refused = true;
    if (!params_life_may_be_refused(life))
        sim_fail(life->cast->world, "%s is not connected: %s", life->name,
                 muster_params_error(params)->text);
}

static void start_client(struct sim_node *node, struct muster_env *env, void *data)
{
    struct params_life *life = data;
    struct params_client *client = muster_mem_alloc_zero(env->mem, 1, sizeof(*client));
    char name[32];
    struct muster_params_options options = {.server = life->cast->servers,
                                            .job = life->cast->job,
                                            .queue_max_bytes = PARAMS_QUEUE_MAX_BYTES,
                                            .connect_deadline_ns =
                                                muster_loop_after_ns(env->loop, PATIENCE_NS),
                                            .data = client};

    snprintf(name, sizeof(name), "source:%" PRIu32, life->source->element);
    if (life->source->is_named)
        options.source = name;
    if (life->cast->is_ticking)
        options.clock_sources = life->cast->source_count;
    client->life = life;
    client->env = env;
    muster_timer_init(&client->timer, on_act, client);
    if (muster_params_open(env, &options, on_opened, &client->params, NULL) != MUSTER_OK)
        sim_fail(life->cast->world, "%s: a client does not open", life->name);
    sim_node_set_program(node, client);
}

void params_cast_start(struct params_cast *cast, struct params_source *source,
                       struct sim_host *host)
{
    struct params_life *life = sim_alloc(sizeof(*life));

    if (source->life != NULL && source->is_named) {
        source->life->is_superseded = true;
        life->is_contested = source->life->is_contested || !source->life->was_opened;
    }
    life->cast = cast;
    life->source = source;
    life->step = source->ticked;
    source->life = life;
    snprintf(life->name, sizeof(life->name), "source%" PRIu32 ".%" PRIu32, source->element,
             source->life_count++);
    muster_list_append(&cast->lives, &life->link);
    life->node = sim_node_start(
        cast->world, &(struct sim_node_options){
                         .name = life->name, .host = host, .start = start_client, .data = life});
}

/* --- All of them --- */

static void check_queues(void *data)
{
    struct params_cast *cast = data;

    MUSTER_LIST_EACH (&cast->lives, life, struct params_life, link) {
        const struct params_client *client =
            life->node == cast->world->last_node ? client_of(life) : NULL;

        if (client == NULL || client->params == NULL)
            continue;
        if (client->params->queued_bytes + client->params->collected_bytes >
            PARAMS_QUEUE_MAX_BYTES + QUEUE_HEADS_BYTES)
            sim_fail(cast->world, "%s: its queue has %" PRIu64 " bytes", life->name,
                     client->params->queued_bytes + client->params->collected_bytes);
    }
}

static bool is_at_rest(void *data)
{
    const struct params_cast *cast = data;

    MUSTER_LIST_EACH (&cast->lives, life, struct params_life, link) {
        const struct params_client *client = client_of(life);

        if (sim_node_is_alive(life->node) &&
            (client == NULL || !client->is_ready || client->busy_count > 0))
            return false;
    }
    return true;
}

static bool is_closed(void *data)
{
    const struct params_cast *cast = data;

    MUSTER_LIST_EACH (&cast->lives, life, struct params_life, link) {
        const struct params_client *client = client_of(life);

        if (client != NULL && client->params != NULL)
            return false;
    }
    return true;
}

static void on_closed(struct muster_params *params, enum muster_rc rc)
{
    struct params_client *client = muster_params_data(params);

    client->params = NULL;
    if (rc != MUSTER_OK && !params_life_may_be_refused(client->life))
        sim_fail(client->life->cast->world, "%s: its client closes with %s", client->life->name,
                 muster_rc_text(rc));
}

typedef void client_visit_fn(struct params_client *client);

static void lives_visit(struct params_cast *cast, client_visit_fn *visit)
{
    MUSTER_LIST_EACH (&cast->lives, life, struct params_life, link) {
        struct params_client *client = client_of(life);

        if (client == NULL)
            continue;
        sim_enter(life->node);
        visit(client);
        sim_leave(life->node);
    }
}

static void visit_retire(struct params_client *client)
{
    if (client->is_ready)
        client_retire(client);
}

static void visit_look(struct params_client *client)
{
    struct params_slot *slot = client->is_refused ? NULL : slot_take(client);

    if (slot == NULL)
        return;
    slot->is_last = true;
    for (uint32_t row = 0; row < PARAMS_ROWS; row++)
        slot_add_row(slot, row);
    slot_begin(slot);
}

static void visit_close(struct params_client *client)
{
    muster_timer_stop(&client->timer);
    muster_params_close(client->params, muster_loop_after_ns(client->env->loop, CLOSE_NS),
                        on_closed);
}

static void visit_free(struct params_client *client)
{
    muster_mem_free(client->env->mem, client);
}

static void lives_await_rest(struct params_cast *cast, uint64_t limit_ns, const char *text)
{
    if (sim_failure(cast->world) != NULL || sim_run_until(cast->world, is_at_rest, cast, limit_ns))
        return;
    MUSTER_LIST_EACH (&cast->lives, life, struct params_life, link) {
        const struct params_client *client = client_of(life);

        for (uint32_t i = 0; client != NULL && i < PARAMS_SLOTS; i++)
            if (client->slots[i].is_busy)
                sim_fail(cast->world, "%s: %s: a %s at clock %" PRIu64 ", %s", life->name, text,
                         act_name(client->slots[i].act), client->slots[i].clock,
                         muster_params_error(client->params)->text);
        if (client != NULL && !client->is_ready)
            sim_fail(cast->world, "%s: %s: its start", life->name, text);
    }
    sim_fail(cast->world, "%s", text);
}

/* Ending in order: nothing may be left. */
static void lives_exit(struct params_cast *cast)
{
    lives_visit(cast, visit_close);
    if (!sim_run_until(cast->world, is_closed, cast, CLOSE_NS) ||
        !sim_run_for(cast->world, MUSTER_NS_PER_S))
        sim_fail(cast->world, "the clients do not close");
    if (sim_failure(cast->world) != NULL)
        return;
    lives_visit(cast, visit_free);
    MUSTER_LIST_EACH (&cast->lives, life, struct params_life, link)
        if (sim_node_is_alive(life->node))
            sim_exit(life->node);
}

void params_cast_finish(struct params_cast *cast, uint64_t limit_ns)
{
    cast->is_ending = true;
    lives_visit(cast, visit_retire);
    lives_await_rest(cast, limit_ns, "an operation does not end though all is well");
    if (sim_failure(cast->world) == NULL)
        lives_visit(cast, visit_look);
    lives_await_rest(cast, limit_ns, "a pull at rest does not end");
    for (uint32_t i = 0; i < cast->source_count && sim_failure(cast->world) == NULL; i++) {
        const struct params_life *life = cast->sources[i].life;

        if (!client_of(life)->has_looked && !life->is_contested)
            sim_fail(cast->world, "%s does not see the rows at rest", life->name);
    }
    if (sim_failure(cast->world) == NULL)
        lives_exit(cast);
}

void params_cast_revive(struct params_cast *cast)
{
    for (uint32_t i = 0; i < cast->source_count; i++)
        if (!sim_node_is_alive(cast->sources[i].life->node))
            params_cast_start(cast, &cast->sources[i], cast->hosts[i]);
}

void params_cast_kill(struct params_cast *cast)
{
    MUSTER_LIST_EACH (&cast->lives, life, struct params_life, link)
        if (sim_node_is_alive(life->node))
            sim_kill(life->node);
    params_cast_revive(cast);
}

void params_cast_replace(struct params_cast *cast)
{
    struct params_source *source = &cast->sources[params_cast_draw(cast, cast->source_count)];

    if (params_cast_draw(cast, 1000) < cast->replace_permille && source->is_named &&
        source->life->was_opened && source->life_count < cast->lives_max)
        params_cast_start(cast, source, cast->hosts[params_cast_draw(cast, cast->source_count)]);
}

void params_cast_open(struct params_cast *cast)
{
    muster_list_init(&cast->lives);
    cast->source_count = 2 + (uint32_t)params_cast_draw(cast, PARAMS_SOURCES_MAX - 1);
    cast->replace_permille = params_cast_draw(cast, 2) == 0 || cast->is_ticking ? 0 : 30;
    for (uint32_t i = 0; i < cast->source_count; i++) {
        char name[32];

        snprintf(name, sizeof(name), "client%" PRIu32, i);
        cast->hosts[i] =
            i == 0 && cast->cut_host != NULL ? cast->cut_host : sim_host_add(cast->world, name);
        cast->sources[i].element = i;
        cast->sources[i].is_named = cast->is_ticking || params_cast_draw(cast, 2) == 0;
        params_cast_start(cast, &cast->sources[i], cast->hosts[i]);
    }
    sim_oracle_add(cast->world, check_queues, cast);
}

void params_cast_close(struct params_cast *cast)
{
    for (uint32_t i = 0; i < PARAMS_ROWS; i++) {
        free(cast->rows[i].chain);
        for (uint32_t j = 0; j < PARAMS_SOURCES_MAX; j++)
            free(cast->rows[i].before[j]);
    }
    while (!muster_list_is_empty(&cast->lives))
        free(MUSTER_CONTAINER_OF(muster_list_pop(&cast->lives), struct params_life, link));
}
