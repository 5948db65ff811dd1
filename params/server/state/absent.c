/* Clients that have lost their links. The memory says which sources have one, so that the next process knows of those
 * that it must expect. */
#include "params/server/state/absent.h"

#include <stdatomic.h>
#include <string.h>

#include "params/server/state/clock.h"
#include "params/store/source.h"

static struct muster_params_source *source_of(const struct muster_params_server *server,
                                              uint64_t slot)
{
    return muster_params_source_at(server->region, slot);
}

static bool is_linked(const struct muster_params_server *server, uint64_t slot)
{
    return (source_of(server, slot)->flags & MUSTER_PARAMS_SOURCE_LINKED) != 0;
}

static void linked_set(struct muster_params_server *server, uint64_t slot, bool is_set)
{
    struct muster_params_source *source = source_of(server, slot);
    uint32_t flags = source->flags & ~MUSTER_PARAMS_SOURCE_LINKED;

    MUSTER_PARAMS_STORE(&source->flags, is_set ? flags | MUSTER_PARAMS_SOURCE_LINKED : flags);
}

static bool has_clients(const struct muster_params_server *server, uint64_t slot)
{
    const struct muster_params_clocks *clocks = &server->clocks;

    return slot < clocks->presence_count && clocks->presences[slot].clients > 0;
}

static void expiry_schedule(struct muster_params_server *server, uint64_t wait_ns)
{
    if (!muster_timer_is_started(&server->absent_expiry))
        muster_timer_start(&server->absent_expiry, server->env->loop,
                           muster_loop_after_ns(server->env->loop, wait_ns));
}

static void absence_begin(struct muster_params_server *server, uint64_t slot)
{
    struct muster_params_presence *presence = muster_params_server_presence(server, slot);

    if (presence == NULL) /* without memory nobody waits for it */
        return;
    presence->is_absent = true;
    presence->absent_ns = muster_loop_now_ns(server->env->loop);
    server->absent_count++;
    expiry_schedule(server, MUSTER_PARAMS_ABSENCE_MAX_NS);
}

static void name_forget(struct muster_params_server *server,
                        struct muster_params_presence *presence)
{
    muster_mem_free(server->env->mem, presence->name);
    presence->name = NULL;
}

/* Errors of cuts that wait for the source tell its name; without memory for that they have the id alone. */
static void name_keep(struct muster_params_server *server, struct muster_params_presence *presence,
                      const char *name)
{
    size_t bytes = strlen(name) + 1;

    name_forget(server, presence);
    if (bytes == 1)
        return;
    presence->name = muster_mem_alloc(server->env->mem, bytes);
    if (presence->name != NULL)
        memcpy(presence->name, name, bytes);
}

static void absence_end(struct muster_params_server *server, uint64_t slot)
{
    struct muster_params_presence *presence = muster_params_server_presence(server, slot);

    if (presence == NULL || !presence->is_absent)
        return;
    presence->is_absent = false;
    name_forget(server, presence);
    server->absent_count--;
}

void muster_params_absent_join(struct muster_params_client *client)
{
    struct muster_params_server *server = client->server;
    struct muster_params_presence *presence = muster_params_server_presence(server, client->slot);

    if (presence == NULL)
        return;
    presence->clients++;
    absence_end(server, client->slot);
    linked_set(server, client->slot, true);
}

void muster_params_absent_lose(struct muster_params_client *client)
{
    struct muster_params_server *server = client->server;
    uint64_t slot = client->slot;

    if (!has_clients(server, slot))
        return;
    server->clocks.presences[slot].clients--;
    if (has_clients(server, slot) || !is_linked(server, slot))
        return;
    absence_begin(server, slot);
    name_keep(server, &server->clocks.presences[slot], client->name);
}

void muster_params_absent_leave(struct muster_params_client *client)
{
    const struct muster_params_source *source = source_of(client->server, client->slot);

    if (source->generation == client->generation)
        linked_set(client->server, client->slot, false);
}

void muster_params_absent_learn(struct muster_params_server *server, uint64_t slot)
{
    if (is_linked(server, slot))
        return;
    linked_set(server, slot, true);
    if (!has_clients(server, slot))
        absence_begin(server, slot);
}

void muster_params_absent_drop(struct muster_params_server *server, uint64_t slot)
{
    absence_end(server, slot);
    linked_set(server, slot, false);
}

static bool is_absent(const struct muster_params_server *server, uint64_t slot)
{
    const struct muster_params_clocks *clocks = &server->clocks;

    return slot < clocks->presence_count && clocks->presences[slot].is_absent;
}

bool muster_params_absent_find(const struct muster_params_server *server, uint64_t *ret_slot)
{
    for (uint64_t slot = 0; slot < server->clocks.presence_count && server->absent_count > 0;
         slot++) {
        if (!is_absent(server, slot) ||
            muster_params_source_sequence(server->region, source_of(server, slot)) == 1)
            continue;
        *ret_slot = slot;
        return true;
    }
    return false;
}

const char *muster_params_absent_name(const struct muster_params_server *server, uint64_t slot)
{
    return is_absent(server, slot) && server->clocks.presences[slot].name != NULL
               ? server->clocks.presences[slot].name
               : "";
}

/* Clients that have not come back in time are not expected any more. */
static void on_expiry(struct muster_timer *timer)
{
    struct muster_params_server *server = timer->data;
    uint64_t now_ns = muster_loop_now_ns(server->env->loop);

    for (uint64_t slot = 0; slot < server->clocks.presence_count && server->absent_count > 0;
         slot++) {
        if (is_absent(server, slot) &&
            now_ns - server->clocks.presences[slot].absent_ns >= MUSTER_PARAMS_ABSENCE_MAX_NS)
            muster_params_absent_drop(server, slot);
    }
    if (server->absent_count > 0)
        expiry_schedule(server, MUSTER_PARAMS_ABSENCE_MAX_NS / 10);
}

void muster_params_absent_open(struct muster_params_server *server)
{
    muster_timer_init(&server->absent_expiry, on_expiry, server);
    for (uint64_t slot = 0; slot < server->region->head->source_count; slot++) {
        if (is_linked(server, slot))
            absence_begin(server, slot);
    }
}

void muster_params_absent_close(struct muster_params_server *server)
{
    muster_timer_stop(&server->absent_expiry);
    for (uint64_t slot = 0; slot < server->clocks.presence_count; slot++)
        name_forget(server, &server->clocks.presences[slot]);
}
