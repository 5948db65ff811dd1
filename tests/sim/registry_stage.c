/* The registry of a play. */
#include "tests/sim/registry_stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/registry.h>
#include <muster/registry_server.h>

#include "cluster/store/store.h"
#include "tests/sim/sim_internal.h"

#define PORT           2379
#define VIEW_KEY       "/muster/" REGISTRY_STAGE_JOB "/view"
#define DEAD_PREFIX    "/muster/" REGISTRY_STAGE_JOB "/dead/"
#define PUT_TIMEOUT_NS MUSTER_NS_PER_S
#define PUT_RETRY_NS   (20 * MUSTER_NS_PER_MS)

/* A death that the launcher must tell. */
struct notice {
    struct muster_incarnation incarnation;
    struct muster_list link;
};

struct launcher {
    struct registry_stage *stage;
    struct muster_env *env;
    struct muster_registry *registry;
    struct muster_registry_op op;
    struct muster_timer timer;
    bool is_busy;
};

struct registry_stage {
    struct sim_world *world;
    struct ledger *ledger;
    struct sim_host *host;
    struct sim_node *server_node, *launcher_node;
    struct muster_registry_store *store;
    struct muster_list notices;
    int64_t next_seq;   /* of the store's log: everything below has been looked at */
    uint64_t looked_at; /* events of the world */
};

/* The registry's process. */

static void start_server(struct sim_node *node, struct muster_env *env, void *data)
{
    struct registry_stage *stage = data;
    struct muster_registry_server *server = NULL;
    struct muster_registry_server_options options = {.listen = NULL};
    struct muster_address address = sim_host_address(stage->host, PORT);
    struct muster_error error = {.rc = MUSTER_OK};
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    options.listen = muster_address_format(&address, text);
    if (muster_registry_server_open(env, stage->store, &options, &server, &error) != MUSTER_OK)
        sim_fail(stage->world, "the registry does not open: %s", error.text);
    sim_node_set_program(node, server);
}

void registry_stage_restart(struct registry_stage *stage)
{
    if (stage->server_node != NULL && sim_node_is_alive(stage->server_node))
        return;
    sim_note(stage->world, "registry_start", 0, 0, 0);
    stage->server_node = sim_node_start(
        stage->world,
        &(struct sim_node_options){
            .name = "registry", .host = stage->host, .start = start_server, .data = stage});
}

struct sim_node *registry_stage_node(const struct registry_stage *stage)
{
    return stage->server_node;
}

void registry_stage_kill(struct registry_stage *stage)
{
    if (!sim_node_is_alive(stage->server_node))
        return;
    sim_note(stage->world, "registry_kill", 0, 0, 0);
    sim_kill(stage->server_node);
    muster_registry_store_rollback(stage->store);
}

/* Accepted records, read from the store itself after every event. */

static enum muster_rc visit_record(void *data, const struct muster_registry_record *record)
{
    struct registry_stage *stage = data;
    struct muster_view *view = NULL;

    if (record->seq > muster_registry_store_committed_seq(stage->store))
        return MUSTER_OK; /* not accepted yet */
    stage->next_seq = record->seq + 1;
    if (record->key.size != strlen(VIEW_KEY) ||
        memcmp(record->key.data, VIEW_KEY, record->key.size) != 0)
        return MUSTER_OK;
    if (record->version == 0) {
        sim_fail(stage->world, "the view's key was deleted");
        return MUSTER_OK;
    }
    if (muster_view_unpack(muster_mem_system(), record->value.data, record->value.size, &view) !=
        MUSTER_OK) {
        sim_fail(stage->world, "the view's key holds no view");
        return MUSTER_OK;
    }
    ledger_committed(stage->ledger, view);
    muster_view_unref(view);
    return MUSTER_OK;
}

static void look_at_store(void *data)
{
    struct registry_stage *stage = data;

    if (stage->world->last_node != stage->server_node ||
        muster_registry_store_committed_seq(stage->store) < stage->next_seq)
        return;
    if (muster_registry_store_scan_log(stage->store, stage->next_seq, visit_record, stage) !=
        MUSTER_OK)
        sim_fail(stage->world, "the store cannot be read: %s",
                 muster_registry_store_error(stage->store));
}

/* The launcher's client. */

static void tell_next(struct launcher *launcher);

static void on_put(struct muster_registry_op *op, enum muster_rc rc)
{
    struct launcher *launcher = op->data;
    struct registry_stage *stage = launcher->stage;
    struct muster_loop *loop = launcher->env->loop;

    launcher->is_busy = false;
    if (rc == MUSTER_OK && !muster_list_is_empty(&stage->notices))
        free(MUSTER_CONTAINER_OF(muster_list_pop(&stage->notices), struct notice, link));
    muster_timer_start(&launcher->timer, loop,
                       muster_loop_after_ns(loop, rc == MUSTER_OK ? 0 : PUT_RETRY_NS));
}

static void tell_next(struct launcher *launcher)
{
    struct registry_stage *stage = launcher->stage;
    const struct notice *notice;
    struct muster_bytes value = {.data = "SIGKILL", .size = 7};
    struct muster_bytes key;
    char text[128], name[MUSTER_INCARNATION_TEXT_BYTES];

    if (launcher->is_busy || muster_list_is_empty(&stage->notices))
        return;
    notice = MUSTER_CONTAINER_OF(stage->notices.next, struct notice, link);
    snprintf(text, sizeof(text), DEAD_PREFIX "%s",
             muster_incarnation_format(&notice->incarnation, name));
    key = (struct muster_bytes){.data = text, .size = strlen(text)};
    launcher->op.data = launcher;
    launcher->is_busy =
        muster_registry_put_start(&launcher->op, launcher->registry, key, value, 0,
                                  muster_loop_after_ns(launcher->env->loop, PUT_TIMEOUT_NS),
                                  on_put) == MUSTER_OK;
    if (!launcher->is_busy)
        sim_fail(stage->world, "the launcher's put was refused");
}

static void on_launcher_timer(struct muster_timer *timer)
{
    tell_next(timer->data);
}

static void start_launcher(struct sim_node *node, struct muster_env *env, void *data)
{
    struct launcher *launcher = sim_mem_alloc_surely(env->mem, sizeof(*launcher));
    struct muster_registry_options options = {.endpoints = REGISTRY_STAGE_ENDPOINT};

    memset(launcher, 0, sizeof(*launcher));
    launcher->stage = data;
    launcher->env = env;
    sim_node_set_program(node, launcher);
    muster_timer_init(&launcher->timer, on_launcher_timer, launcher);
    if (muster_registry_open(env, &options, &launcher->registry, NULL) != MUSTER_OK)
        sim_fail(launcher->stage->world, "the launcher's client does not open");
    else
        tell_next(launcher);
}

void registry_stage_confirm_dead(struct registry_stage *stage,
                                 const struct muster_incarnation *incarnation)
{
    struct notice *notice = sim_alloc(sizeof(*notice));
    struct launcher *launcher = sim_node_program(stage->launcher_node);

    notice->incarnation = *incarnation;
    muster_list_append(&stage->notices, &notice->link);
    if (launcher == NULL || launcher->registry == NULL)
        return;
    sim_enter(stage->launcher_node);
    tell_next(launcher);
    sim_leave(stage->launcher_node);
}

struct registry_stage *registry_stage_open(struct sim_world *world, struct sim_host *host,
                                           struct ledger *ledger)
{
    struct registry_stage *stage = sim_alloc(sizeof(*stage));
    struct muster_registry_store_options options = {.path = NULL};
    struct muster_error error = {.rc = MUSTER_OK};

    stage->world = world;
    stage->ledger = ledger;
    stage->host = host;
    muster_list_init(&stage->notices);
    if (muster_registry_store_open(muster_mem_system(), &options, &stage->store, &error) !=
        MUSTER_OK) {
        fprintf(stderr, "registry store: %s\n", error.text);
        abort();
    }
    registry_stage_restart(stage);
    stage->launcher_node = sim_node_start(
        world, &(struct sim_node_options){
                   .name = "launcher", .host = host, .start = start_launcher, .data = stage});
    sim_oracle_add(world, look_at_store, stage);
    return stage;
}

/* The processes go first: nothing of the store may be in use. */
void registry_stage_close(struct registry_stage *stage)
{
    sim_kill(stage->server_node);
    sim_kill(stage->launcher_node);
    muster_registry_store_close(stage->store);
    while (!muster_list_is_empty(&stage->notices))
        free(MUSTER_CONTAINER_OF(muster_list_pop(&stage->notices), struct notice, link));
    free(stage);
}
