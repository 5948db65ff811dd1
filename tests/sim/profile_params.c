/* Profile "params": clients push to a server of parameters and pull from it while everything dies.
 * Source i adds 1.0 to element i of a row only, so that a row is the vector of the counts. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <muster/params.h>
#include <muster/params_server.h>

#include "params/client/client_internal.h"
#include "params/server/seat.h"
#include "tests/sim/faults.h"
#include "tests/sim/params_memory.h"
#include "tests/sim/profile.h"
#include "tests/sim/sim_internal.h"

#define SOURCES_MAX     5u
#define ROWS            12u
#define ROWS_PER_OP     6u
#define SLOTS           24u
#define VALUES_PER_LIFE 100u
#define SHARDS          8u
#define PORT            7300
#define MEMORY_BYTES    MUSTER_PARAMS_REGION_BYTES_MIN
#define QUEUE_MAX_BYTES 1024u
/* The queue is checked by the rows of a turn; their messages have heads, too. */
#define QUEUE_HEADS_BYTES                                                                          \
    (2 * sizeof(struct muster_params_request) + SLOTS * sizeof(struct muster_params_part))
#define ACT_NS         (4 * MUSTER_NS_PER_MS)
#define RUN_NS         (600 * MUSTER_NS_PER_MS)
#define HEAL_NS        (30 * MUSTER_NS_PER_S)
#define PATIENCE_NS    (3600 * MUSTER_NS_PER_S)
#define RESTART_MAX_NS (20 * MUSTER_NS_PER_MS)

struct scene;

/* The knowledge of the clients about one row. */
struct row_book {
    uint64_t begun[SOURCES_MAX];    /* pushes of each source */
    uint64_t answered[SOURCES_MAX]; /* those of them that ended well */
    uint64_t seen[SOURCES_MAX];     /* the newest vector that a pull has returned */
    /* All vectors that pulls have returned, each once, rising. */
    uint64_t (*chain)[SOURCES_MAX];
    size_t chain_count, chain_room;
};

struct source {
    uint32_t element;
    bool is_named;
    uint32_t life_count;
    struct life *life; /* the newest */
};

/* One process of a source. It outlives the process, for the books. */
struct life {
    struct scene *scene;
    struct source *source;
    struct sim_node *node;
    struct muster_list link;
    char name[32];
    bool is_superseded; /* a younger process has been started under its name */
    bool is_contested;  /* the first OPEN of an older one may arrive after its own */
    bool was_opened;
    bool is_fenced; /* and that one has been told that it is connected */
    uint64_t begun[ROWS], answered[ROWS], failed[ROWS];
};

struct slot {
    struct client *client;
    struct muster_params_op op;
    bool is_busy, is_push, is_cancelled, is_hasty, is_fenced, is_last;
    uint32_t count;
    uint32_t rows[ROWS];
    uint64_t keys[ROWS];
    float values[ROWS * SOURCES_MAX];
    /* The least that the answer to a pull must have. */
    uint64_t least[ROWS][SOURCES_MAX];
    uint64_t own[ROWS];
};

/* The program of a life. */
struct client {
    struct life *life;
    struct muster_env *env;
    struct muster_params *params;
    struct muster_params_table *table;
    struct muster_params_op table_op;
    struct muster_timer timer;
    struct slot slots[SLOTS];
    uint32_t busy_count;
    bool is_ready, has_looked, is_closing, is_refused;
};

struct scene {
    struct sim_world *world;
    struct sim_host *server_host, *hosts[SOURCES_MAX];
    struct sim_node *server_node;
    struct params_memory *memory; /* of the server's host: it outlives the process */
    struct muster_params_seat *seat;
    uint64_t restart_ns;
    bool is_server_closed;
    struct source sources[SOURCES_MAX];
    uint32_t source_count;
    struct muster_list lives;
    struct row_book rows[ROWS];
    uint32_t kill_permille, replace_permille;
    uint64_t kills;
    bool is_ending;
    uint64_t op_count;
};

static uint64_t scene_draw(struct scene *scene, uint64_t bound)
{
    return muster_rng_below(sim_world_rng(scene->world), bound);
}

static uint64_t client_draw(struct client *client, uint64_t bound)
{
    return muster_rng_below(client->env->rng, bound);
}

/* --- The books --- */

static int vectors_compare(const uint64_t *a, const uint64_t *b, uint32_t count,
                           bool *ret_is_ordered)
{
    bool is_below = false, is_above = false;

    for (uint32_t i = 0; i < count; i++) {
        is_below |= a[i] < b[i];
        is_above |= a[i] > b[i];
    }
    *ret_is_ordered = !(is_below && is_above);
    return is_below ? -1 : is_above;
}

/* The chain is searched from its newest end, where almost all answers belong. */
static void chain_insert(struct scene *scene, uint32_t row, const uint64_t *vector)
{
    struct row_book *book = &scene->rows[row];
    size_t at = book->chain_count;

    for (; at > 0; at--) {
        bool is_ordered;
        int order = vectors_compare(vector, book->chain[at - 1], scene->source_count, &is_ordered);

        if (!is_ordered)
            sim_fail(scene->world, "row %" PRIu32 ": two pulls disagree about the order of pushes",
                     row);
        if (!is_ordered || order == 0)
            return;
        if (order > 0)
            break;
    }
    if (book->chain_count == book->chain_room) {
        book->chain_room = book->chain_room * 2 + 64;
        book->chain = realloc(book->chain, book->chain_room * sizeof(*book->chain));
        MUSTER_ASSERT(book->chain != NULL);
    }
    memmove(book->chain + at + 1, book->chain + at,
            (book->chain_count - at) * sizeof(*book->chain));
    memcpy(book->chain[at], vector, sizeof(*book->chain));
    book->chain_count++;
}

/* Its own pushes that were started before it lie before it, whether they are answered or not. */
static void pull_expect(struct slot *slot, uint32_t place)
{
    const struct life *life = slot->client->life;
    struct scene *scene = life->scene;
    uint32_t row = slot->rows[place], own = life->source->element;
    const struct row_book *book = &scene->rows[row];
    uint64_t *least = slot->least[place];

    for (uint32_t i = 0; i < scene->source_count; i++)
        least[i] = book->answered[i] > book->seen[i] ? book->answered[i] : book->seen[i];
    slot->own[place] = book->answered[own] - life->answered[row] + life->begun[row];
}

static void pull_check_element(const struct slot *slot, uint32_t place, uint32_t element,
                               uint64_t count)
{
    const struct life *life = slot->client->life;
    struct scene *scene = life->scene;
    uint32_t row = slot->rows[place];
    const struct row_book *book = &scene->rows[row];

    if (count < slot->least[place][element])
        sim_fail(scene->world,
                 "row %" PRIu32 " has %" PRIu64 " pushes of source %" PRIu32 ", at least %" PRIu64
                 " were answered or seen before",
                 row, count, element, slot->least[place][element]);
    if (count > book->begun[element])
        sim_fail(scene->world,
                 "row %" PRIu32 " has %" PRIu64 " pushes of source %" PRIu32 ", only %" PRIu64
                 " were begun",
                 row, count, element, book->begun[element]);
    if (element == life->source->element && count + life->failed[row] < slot->own[place])
        sim_fail(scene->world,
                 "row %" PRIu32 " has %" PRIu64 " pushes of source %" PRIu32
                 ", which had begun %" PRIu64 " before its pull",
                 row, count, element, slot->own[place]);
    if (slot->is_last && count < book->answered[element])
        sim_fail(scene->world,
                 "row %" PRIu32 " has %" PRIu64 " pushes of source %" PRIu32 " at rest, %" PRIu64
                 " were answered",
                 row, count, element, book->answered[element]);
}

static void pull_judge(struct slot *slot)
{
    struct scene *scene = slot->client->life->scene;
    const float *values = slot->values;

    for (uint32_t i = 0; i < slot->count; i++, values += scene->source_count) {
        uint64_t vector[SOURCES_MAX] = {0};
        uint64_t *seen = scene->rows[slot->rows[i]].seen;

        for (uint32_t j = 0; j < scene->source_count; j++) {
            vector[j] = (uint64_t)values[j];
            if ((float)vector[j] != values[j])
                sim_fail(scene->world, "row %" PRIu32 " has a value that is not a count",
                         slot->rows[i]);
            pull_check_element(slot, i, j, vector[j]);
            seen[j] = vector[j] > seen[j] ? vector[j] : seen[j];
        }
        chain_insert(scene, slot->rows[i], vector);
    }
}

static void push_judge(struct slot *slot, enum muster_rc rc)
{
    struct life *life = slot->client->life;
    struct scene *scene = life->scene;

    if (rc == MUSTER_OK && slot->is_fenced)
        sim_fail(scene->world, "%s: a push was taken that began after a younger process had come",
                 life->name);
    for (uint32_t i = 0; i < slot->count; i++) {
        struct row_book *book = &scene->rows[slot->rows[i]];

        book->answered[life->source->element] += rc == MUSTER_OK;
        life->answered[slot->rows[i]] += rc == MUSTER_OK;
        life->failed[slot->rows[i]] += rc != MUSTER_OK;
    }
}

/* --- Operations --- */

static bool life_may_be_refused(const struct life *life)
{
    return life->is_superseded || life->is_contested;
}

static bool end_is_allowed(const struct slot *slot, enum muster_rc rc)
{
    if (rc == MUSTER_CANCELLED)
        return slot->is_cancelled;
    if (rc == MUSTER_DEADLINE_EXCEEDED)
        return slot->is_hasty;
    if (rc == MUSTER_ABORTED)
        return life_may_be_refused(slot->client->life);
    return rc == MUSTER_OK;
}

static void on_end(struct muster_params_op *op, enum muster_rc rc)
{
    struct slot *slot = op->data;
    struct client *client = slot->client;
    struct scene *scene = client->life->scene;

    sim_note(scene->world, slot->is_push ? "push_end" : "pull_end", client->life->source->element,
             (uint64_t)(slot - client->slots), (uint64_t)rc);
    if (!slot->is_busy) {
        sim_fail(scene->world, "%s: an operation has ended twice", client->life->name);
        return;
    }
    slot->is_busy = false;
    client->busy_count--;
    scene->op_count++;
    if (!end_is_allowed(slot, rc))
        sim_fail(scene->world, "%s: a %s ended with %s: %s", client->life->name,
                 slot->is_push ? "push" : "pull", muster_rc_text(rc), op->error.text);
    if (slot->is_push)
        push_judge(slot, rc);
    else if (rc == MUSTER_OK)
        pull_judge(slot);
    client->has_looked |= slot->is_last;
}

static struct slot *slot_take(struct client *client)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct slot *slot = &client->slots[i];

        if (slot->is_busy)
            continue;
        memset(slot, 0, sizeof(*slot));
        slot->client = client;
        slot->op.data = slot;
        return slot;
    }
    return NULL;
}

static void slot_add_row(struct slot *slot, uint32_t row)
{
    slot->rows[slot->count] = row;
    slot->keys[slot->count++] = (row + 1) * UINT64_C(0x9E3779B97F4A7C15);
}

static enum muster_rc slot_start(struct slot *slot)
{
    struct client *client = slot->client;
    struct muster_params_rows rows = {
        .keys = slot->keys, .values = slot->values, .count = slot->count};
    uint64_t wait_ns =
        slot->is_hasty ? 1 + client_draw(client, 20 * MUSTER_NS_PER_MS) : PATIENCE_NS;
    uint64_t deadline_ns = muster_loop_after_ns(client->env->loop, wait_ns);

    return slot->is_push
               ? muster_params_push_start(&slot->op, client->table, &rows, deadline_ns, on_end)
               : muster_params_pull_start(&slot->op, client->table, &rows, deadline_ns, on_end);
}

static void push_record(struct slot *slot)
{
    struct life *life = slot->client->life;

    for (uint32_t i = 0; i < slot->count; i++) {
        life->scene->rows[slot->rows[i]].begun[life->source->element]++;
        life->begun[slot->rows[i]]++;
    }
}

static void client_begin(struct client *client, bool is_last)
{
    struct life *life = client->life;
    struct scene *scene = life->scene;
    struct slot *slot = slot_take(client);
    enum muster_rc rc;

    if (slot == NULL)
        return;
    slot->is_last = is_last;
    slot->is_push = !is_last && client_draw(client, 3) > 0;
    slot->is_hasty = !is_last && client_draw(client, 50) == 0;
    slot->is_fenced = life->is_fenced;
    for (uint32_t i = 0, rows = 1 + (uint32_t)client_draw(client, ROWS_PER_OP);
         i < rows && !is_last; i++)
        slot_add_row(slot, (uint32_t)client_draw(client, ROWS));
    for (uint32_t row = 0; row < ROWS && is_last; row++)
        slot_add_row(slot, row);
    for (uint32_t i = 0; i < slot->count; i++) {
        if (slot->is_push)
            slot->values[i * scene->source_count + life->source->element] = 1;
        else
            pull_expect(slot, i);
    }
    rc = slot_start(slot);
    if (rc == MUSTER_FAILED_PRECONDITION && life_may_be_refused(life))
        client->is_refused = true;
    else if (rc != MUSTER_OK && !(rc == MUSTER_RESOURCE_EXHAUSTED && slot->is_push))
        sim_fail(scene->world, "%s: an operation is refused: %s", life->name, muster_rc_text(rc));
    if (rc != MUSTER_OK)
        return;
    slot->is_busy = true;
    client->busy_count++;
    if (slot->is_push)
        push_record(slot);
}

static void client_cancel(struct client *client)
{
    struct slot *slot = &client->slots[client_draw(client, SLOTS)];

    if (!slot->is_busy)
        return;
    slot->is_cancelled = true;
    muster_params_op_cancel(&slot->op);
}

static void on_act(struct muster_timer *timer)
{
    struct client *client = timer->data;

    if (client->life->scene->is_ending || client->is_refused)
        return;
    for (uint64_t i = client_draw(client, 6); i > 0; i--)
        client_begin(client, false);
    if (client_draw(client, 60) == 0)
        client_cancel(client);
    muster_timer_start(timer, client->env->loop,
                       muster_loop_after_ns(client->env->loop, 1 + client_draw(client, ACT_NS)));
}

/* --- A client's process --- */

static void on_table(struct muster_params_op *op, enum muster_rc rc)
{
    struct client *client = op->data;

    client->is_ready = true;
    if (rc != MUSTER_OK && life_may_be_refused(client->life))
        client->is_refused = true;
    else if (rc != MUSTER_OK)
        sim_fail(client->life->scene->world, "%s: its table does not open: %s", client->life->name,
                 op->error.text);
    else
        muster_timer_start(&client->timer, client->env->loop,
                           muster_loop_now_ns(client->env->loop));
}

/* From now on older processes of its name are refused. */
static void lives_fence(const struct life *newest)
{
    MUSTER_LIST_EACH (&newest->scene->lives, life, struct life, link)
        if (life->source == newest->source && life != newest && newest->source->is_named &&
            newest->source->life == newest)
            life->is_fenced = true;
}

static void on_opened(struct muster_params *params, enum muster_rc rc)
{
    struct client *client = muster_params_data(params);
    struct life *life = client->life;
    struct muster_params_schema schema = {.name = "counts",
                                          .row_elements = life->scene->source_count,
                                          .wire_dtype = MUSTER_F32,
                                          .optimizer = MUSTER_PARAMS_ADD};

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
    if (!life_may_be_refused(life))
        sim_fail(life->scene->world, "%s is not connected: %s", life->name,
                 muster_params_error(params)->text);
}

static void start_client(struct sim_node *node, struct muster_env *env, void *data)
{
    struct life *life = data;
    struct client *client = muster_mem_alloc_zero(env->mem, 1, sizeof(*client));
    struct muster_address address = sim_host_address(life->scene->server_host, PORT);
    char server[MUSTER_ADDRESS_TEXT_BYTES], name[32];
    struct muster_params_options options = {.server = muster_address_format(&address, server),
                                            .queue_max_bytes = QUEUE_MAX_BYTES,
                                            .connect_deadline_ns =
                                                muster_loop_after_ns(env->loop, PATIENCE_NS),
                                            .data = client};

    snprintf(name, sizeof(name), "source:%" PRIu32, life->source->element);
    if (life->source->is_named)
        options.source = name;
    client->life = life;
    client->env = env;
    muster_timer_init(&client->timer, on_act, client);
    if (muster_params_open(env, &options, on_opened, &client->params, NULL) != MUSTER_OK)
        sim_fail(life->scene->world, "%s: a client does not open", life->name);
    sim_node_set_program(node, client);
}

static void life_start(struct source *source, struct scene *scene, struct sim_host *host)
{
    struct life *life = sim_alloc(sizeof(*life));

    if (source->life != NULL && source->is_named) {
        source->life->is_superseded = true;
        life->is_contested = source->life->is_contested || !source->life->was_opened;
    }
    life->scene = scene;
    life->source = source;
    source->life = life;
    snprintf(life->name, sizeof(life->name), "source%" PRIu32 ".%" PRIu32, source->element,
             source->life_count++);
    muster_list_append(&scene->lives, &life->link);
    life->node = sim_node_start(
        scene->world, &(struct sim_node_options){
                          .name = life->name, .host = host, .start = start_client, .data = life});
}

/* --- The server's process --- */

static void on_server_death(struct sim_node *node, void *data)
{
    struct scene *scene = data;
    uint64_t wait_ns = scene_draw(scene, 2) == 0 ? 0 : scene_draw(scene, RESTART_MAX_NS);

    (void)node;
    params_memory_leave(scene->memory);
    scene->restart_ns = sim_world_now_ns(scene->world) + wait_ns;
}

static void start_server(struct sim_node *node, struct muster_env *env, void *data)
{
    struct scene *scene = data;
    const struct muster_params_seat_options seat = {.shard_count = SHARDS};
    struct muster_address address = sim_host_address(scene->server_host, PORT);
    struct muster_params_server_options options = {.listen = &address};
    struct muster_params_server *server = NULL;
    struct muster_error error;

    muster_params_seat_free(scene->seat); /* its holder is dead */
    scene->seat = NULL;
    if (muster_params_seat_wrap(params_memory_take(scene->memory, node), MEMORY_BYTES, &seat,
                                &scene->seat, &error) != MUSTER_OK) {
        sim_fail(scene->world, "the memory cannot be taken: %s", error.text);
        return;
    }
    options.seat = scene->seat;
    if (muster_params_server_open(env, &options, &server, &error) != MUSTER_OK)
        sim_fail(scene->world, "the server does not open: %s", error.text);
    else
        muster_params_server_set_data(server, scene);
    sim_node_set_program(node, server);
}

static void server_start(struct scene *scene)
{
    scene->server_node =
        sim_node_start(scene->world, &(struct sim_node_options){.name = "server",
                                                                .host = scene->server_host,
                                                                .start = start_server,
                                                                .on_death = on_server_death,
                                                                .data = scene});
}

/* Now, or in the middle of a push that comes. */
static void server_kill(struct scene *scene)
{
    if (!sim_node_is_alive(scene->server_node))
        return;
    scene->kills++;
    if (scene_draw(scene, 2) == 0)
        sim_kill(scene->server_node);
    else
        params_memory_kill_within(scene->memory, 1 + (uint32_t)scene_draw(scene, VALUES_PER_LIFE));
}

/* --- The play --- */

static void check_queues(void *data)
{
    struct scene *scene = data;

    MUSTER_LIST_EACH (&scene->lives, life, struct life, link) {
        const struct client *client =
            life->node == scene->world->last_node ? sim_node_program(life->node) : NULL;

        if (client == NULL || client->params == NULL)
            continue;
        if (client->params->queued_bytes + client->params->collected_bytes >
            QUEUE_MAX_BYTES + QUEUE_HEADS_BYTES)
            sim_fail(scene->world, "%s: its queue has %" PRIu64 " bytes", life->name,
                     client->params->queued_bytes + client->params->collected_bytes);
    }
}

static void scene_revive(struct scene *scene, bool is_at_once)
{
    if (!sim_node_is_alive(scene->server_node) &&
        (is_at_once || sim_world_now_ns(scene->world) >= scene->restart_ns))
        server_start(scene);
    for (uint32_t i = 0; i < scene->source_count; i++)
        if (!sim_node_is_alive(scene->sources[i].life->node))
            life_start(&scene->sources[i], scene, scene->hosts[i]);
}

/* Faults strike between any two events. */
static void scene_play(struct scene *scene)
{
    uint64_t end_ns = sim_world_now_ns(scene->world) + RUN_NS;

    while (sim_world_now_ns(scene->world) < end_ns) {
        uint64_t steps = 1 + scene_draw(scene, UINT64_C(1) << scene_draw(scene, 10));
        struct source *source = &scene->sources[scene_draw(scene, scene->source_count)];

        while (steps-- > 0)
            if (!sim_step(scene->world))
                return;
        scene_revive(scene, false);
        if (scene_draw(scene, 1000) < scene->kill_permille)
            server_kill(scene);
        if (scene_draw(scene, 1000) < scene->replace_permille && source->is_named &&
            source->life->was_opened)
            life_start(source, scene, scene->hosts[scene_draw(scene, scene->source_count)]);
    }
}

static bool is_at_rest(void *data)
{
    const struct scene *scene = data;

    MUSTER_LIST_EACH (&scene->lives, life, struct life, link) {
        const struct client *client = sim_node_program(life->node);

        if (sim_node_is_alive(life->node) &&
            (client == NULL || !client->is_ready || client->busy_count > 0))
            return false;
    }
    return true;
}

static bool is_closed(void *data)
{
    const struct scene *scene = data;

    MUSTER_LIST_EACH (&scene->lives, life, struct life, link) {
        const struct client *client = sim_node_program(life->node);

        if (client != NULL && client->params != NULL)
            return false;
    }
    return true;
}

static void on_closed(struct muster_params *params, enum muster_rc rc)
{
    struct client *client = muster_params_data(params);

    client->params = NULL;
    if (rc != MUSTER_OK && !life_may_be_refused(client->life))
        sim_fail(client->life->scene->world, "%s: its client closes with %s", client->life->name,
                 muster_rc_text(rc));
}

static bool server_is_closed(void *data)
{
    return ((struct scene *)data)->is_server_closed;
}

static void on_server_closed(struct muster_params_server *server)
{
    struct scene *scene = muster_params_server_data(server);

    scene->is_server_closed = true;
}

typedef void life_visit_fn(struct client *client);

static void lives_visit(struct scene *scene, life_visit_fn *visit)
{
    MUSTER_LIST_EACH (&scene->lives, life, struct life, link) {
        struct client *client = sim_node_program(life->node);

        if (client == NULL)
            continue;
        sim_enter(life->node);
        visit(client);
        sim_leave(life->node);
    }
}

static void visit_look(struct client *client)
{
    if (!client->is_refused)
        client_begin(client, true);
}

static void visit_close(struct client *client)
{
    muster_timer_stop(&client->timer);
    muster_params_close(client->params, muster_loop_after_ns(client->env->loop, HEAL_NS),
                        on_closed);
}

static void visit_free(struct client *client)
{
    muster_mem_free(client->env->mem, client);
}

/* Ending in order: nothing may be left. */
static void scene_exit(struct scene *scene)
{
    lives_visit(scene, visit_close);
    if (!sim_run_until(scene->world, is_closed, scene, HEAL_NS) ||
        !sim_run_for(scene->world, MUSTER_NS_PER_S))
        sim_fail(scene->world, "the clients do not close");
    if (sim_failure(scene->world) != NULL)
        return;
    lives_visit(scene, visit_free);
    MUSTER_LIST_EACH (&scene->lives, life, struct life, link)
        if (sim_node_is_alive(life->node))
            sim_exit(life->node);
    sim_enter(scene->server_node);
    muster_params_server_close(sim_node_program(scene->server_node), on_server_closed);
    sim_leave(scene->server_node);
    if (!sim_run_until(scene->world, server_is_closed, scene, HEAL_NS) ||
        !sim_run_for(scene->world, MUSTER_NS_PER_S))
        sim_fail(scene->world, "the server does not close");
    else
        sim_exit(scene->server_node);
}

static void scene_finish(struct scene *scene)
{
    scene_revive(scene, true);
    scene->is_ending = true;
    params_memory_spare(scene->memory);
    if (!sim_run_until(scene->world, is_at_rest, scene, HEAL_NS))
        sim_fail(scene->world, "an operation does not end though all is well");
    if (sim_failure(scene->world) == NULL)
        lives_visit(scene, visit_look);
    if (!sim_run_until(scene->world, is_at_rest, scene, HEAL_NS))
        sim_fail(scene->world, "a pull at rest does not end");
    for (uint32_t i = 0; i < scene->source_count && sim_failure(scene->world) == NULL; i++) {
        const struct life *life = scene->sources[i].life;
        const struct client *client = sim_node_program(life->node);

        if (!client->has_looked && !life->is_contested)
            sim_fail(scene->world, "%s does not see the rows at rest", life->name);
    }
    if (sim_failure(scene->world) == NULL)
        scene_exit(scene);
}

static void scene_open(struct scene *scene)
{
    static const uint32_t kill_permilles[] = {0, 10, 50, 200};

    scene->memory = params_memory_open(MEMORY_BYTES);
    muster_list_init(&scene->lives);
    scene->source_count = 2 + (uint32_t)scene_draw(scene, SOURCES_MAX - 1);
    scene->kill_permille = kill_permilles[scene_draw(scene, 4)];
    scene->replace_permille = scene_draw(scene, 2) == 0 ? 0 : 30;
    scene->server_host = sim_host_add(scene->world, "server");
    server_start(scene);
    for (uint32_t i = 0; i < scene->source_count; i++) {
        char name[32];

        snprintf(name, sizeof(name), "client%" PRIu32, i);
        scene->hosts[i] = sim_host_add(scene->world, name);
        scene->sources[i].element = i;
        scene->sources[i].is_named = scene_draw(scene, 2) == 0;
        life_start(&scene->sources[i], scene, scene->hosts[i]);
    }
    sim_oracle_add(scene->world, check_queues, scene);
}

/* After the world: its processes use the memory. */
static void scene_close(struct scene *scene)
{
    muster_params_seat_free(scene->seat);
    params_memory_close(scene->memory);
    for (uint32_t i = 0; i < ROWS; i++)
        free(scene->rows[i].chain);
    while (!muster_list_is_empty(&scene->lives))
        free(MUSTER_CONTAINER_OF(muster_list_pop(&scene->lives), struct life, link));
}

void sim_profile_params(struct sim_run *run, const struct sim_profile *profile)
{
    struct scene scene = {.world = sim_run_open(run)};
    struct sim_faults_options options = {
        .allowed = SIM_FAULTS_ALL & ~SIM_FAULT_BIT(CRASH_HOST), /* the memory goes with the host */
        .interval_min_ns = 5 * MUSTER_NS_PER_MS,
        .interval_max_ns = 100 * MUSTER_NS_PER_MS,
        .duration_max_ns = 300 * MUSTER_NS_PER_MS,
        .count_max = 40,
    };
    struct sim_faults *faults;

    (void)profile;
    scene_open(&scene);
    faults = sim_faults_start(scene.world, &options);
    scene_play(&scene);
    sim_faults_heal(faults);
    scene_finish(&scene);
    sim_run_close(run, scene.world, sim_faults_count(faults) + scene.kills);
    sim_faults_free(faults);
    scene_close(&scene);
}
