/* The server in its job's registry: opening, leaving, closing. */
#include "params/server/registry/registration.h"

#include <stdio.h>

#include "params/server/registry/registration_internal.h"
#include "params/server/state/restore.h"

_Static_assert(MUSTER_PARAMS_REPLICAS_MAX == MUSTER_PARAMS_COPIES_MAX, "the map has room for them");

/* --- Leaving --- */

/* Whether the registry shows a server that does not leave; not this one, where except is its id. Where the registry is
 * away its keys do not tell who leaves, but farewells do. */
static bool somebody_stays(struct muster_params_registration *registration,
                           const struct muster_incarnation *except, bool is_away)
{
    MUSTER_LIST_EACH (&registration->peers, peer, struct muster_params_peer, node) {
        const struct muster_params_map_server *server = &peer->record.server;

        if (!server->is_leaving &&
            (except == NULL || !muster_incarnation_is_equal(&server->id, except)) &&
            (!is_away || !muster_params_farewell_is_mutual(registration, peer)))
            return true;
    }
    return false;
}

bool muster_params_registration_has_heir(const struct muster_params_server *server)
{
    return somebody_stays(server->registration, &server->registration->record.server.id, false);
}

static bool is_registered(const void *data, const struct muster_incarnation *id)
{
    return muster_params_peer_find(data, id) != NULL;
}

const struct muster_params_map_server *muster_params_registration_missing(
    const struct muster_params_server *server)
{
    struct muster_params_registration *registration = server->registration;

    return registration == NULL || server->map == NULL
               ? NULL
               : muster_params_departure_missing(&registration->departures, server->map,
                                                 is_registered, registration);
}

/* Nobody could take its shards now, but a server that is dead may come back, and have its own part of the rows. */
static bool has_nobody(struct muster_params_registration *registration)
{
    bool is_away = muster_params_farewell_is_final(registration);
    const struct muster_params_map_server *missing;

    if (somebody_stays(registration, is_away ? &registration->record.server.id : NULL, is_away))
        return false;
    missing = muster_params_registration_missing(registration->server);
    if (missing != NULL && !registration->is_waiting)
        MUSTER_LOG(registration->server->env, WARN, "params_drain_waits", "server",
                   missing->address);
    registration->is_waiting = missing != NULL;
    return missing == NULL;
}

/* Nobody has heard of it, and its memory has no rows; or all rows of the job have gone. */
static bool has_no_part(const struct muster_params_registration *registration)
{
    const struct muster_params_server *server = registration->server;

    return server->map == NULL &&
           (registration->is_known || registration->is_lost ||
            (!registration->has_lease && server->region->head->table_count == 0));
}

/* It has nothing that others could need, or there is nobody who could take it. */
static bool is_drained(struct muster_params_registration *registration)
{
    const struct muster_params_server *server = registration->server;
    const struct muster_params_map *map = server->map;

    return has_no_part(registration) ||
           (map != NULL && registration->is_known &&
            (!muster_params_map_has_server(map, server->place) || has_nobody(registration)));
}

/* The map cannot change while the registry is away. */
static void cut_off_tell(struct muster_params_registration *registration)
{
    bool is_cut_off = muster_params_registration_away(registration->server) != NULL;

    if (is_cut_off && !registration->is_cut_off)
        MUSTER_LOG(registration->server->env, WARN, "params_drain_waits", "registry",
                   registration->endpoints, "reason", registration->away.text);
    registration->is_cut_off = is_cut_off;
}

static void drain_check(struct muster_params_registration *registration)
{
    muster_params_registration_fn *left = registration->left;

    if (left == NULL)
        return;
    if (!is_drained(registration)) {
        cut_off_tell(registration);
        if (registration->is_cut_off)
            muster_params_farewells_send(registration);
        return;
    }
    registration->left = NULL;
    left(registration->server);
}

/* In a turn of its own: the server may be closed in it. */
static void on_look(struct muster_task *task)
{
    drain_check(task->data);
}

void muster_params_registration_leave(struct muster_params_server *server,
                                      muster_params_registration_fn *left)
{
    struct muster_params_registration *registration = server->registration;

    registration->left = left;
    registration->record.server.is_leaving = true;
    muster_params_entry_change(registration);
    muster_params_decide_post(registration);
}

/* --- Opening and closing --- */

static enum muster_rc record_fill(struct muster_params_registration *registration,
                                  const struct muster_params_server_options *options,
                                  struct muster_error *ret_error)
{
    struct muster_params_server *server = registration->server;
    struct muster_params_server_record *record = &registration->record;
    struct muster_host *host = server->env->host;
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    const char *reach = options->reach;

    if (reach == NULL)
        reach = muster_address_format(muster_port_address(server->port), text);
    if (options->replicas > MUSTER_PARAMS_REPLICAS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "replicas must be from 1 to %u, got %u", MUSTER_PARAMS_REPLICAS_MAX,
                                options->replicas);
    if (snprintf(record->server.address, sizeof(record->server.address), "%s", reach) >=
        (int)sizeof(record->server.address))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the address that others connect to must have at most %zu bytes",
                                sizeof(record->server.address) - 1);
    record->server.id = server->region->head->id;
    record->shard_count = server->region->head->shard_count;
    record->replicas = options->replicas != 0 ? options->replicas : 1;
    muster_params_restore_cut(server, &record->cut, &record->cut_hash);
    if (host == NULL)
        return MUSTER_OK;
    snprintf(record->server.host_key, sizeof(record->server.host_key), "%s", muster_host_key(host));
    record->pid = muster_host_pid(host);
    record->started = muster_host_started(host, record->pid);
    return MUSTER_OK;
}

enum muster_rc muster_params_registration_open(struct muster_params_server *server,
                                               const struct muster_params_server_options *options,
                                               struct muster_error *ret_error)
{
    const struct muster_registry_options registry = {.endpoints = options->registry};
    struct muster_params_registration *registration =
        muster_mem_alloc_zero(server->env->mem, 1, sizeof(*registration));
    enum muster_rc rc;

    if (registration == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a server");
    registration->server = server;
    registration->is_new_by_force = options->is_new_by_force;
    registration->failed = options->failed;
    snprintf(registration->endpoints, sizeof(registration->endpoints), "%s", options->registry);
    registration->expected = options->server_count != 0 ? options->server_count : 1;
    muster_list_init(&registration->peers);
    muster_params_entry_init(registration);
    muster_params_keys_init(registration);
    muster_params_former_init(registration);
    muster_params_farewell_init(registration);
    muster_params_next_map_init(registration);
    muster_task_init(&registration->look, on_look, registration);
    snprintf(registration->prefix, sizeof(registration->prefix), "/muster/%s/params/",
             server->hello.job);
    rc = record_fill(registration, options, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_registry_open(server->env, &registry, &registration->registry, ret_error);
    if (rc != MUSTER_OK) {
        muster_mem_free(server->env->mem, registration);
        return rc;
    }
    muster_registry_set_data(registration->registry, registration);
    server->registration = registration;
    muster_params_entry_register(registration);
    muster_params_keys_read(registration);
    return MUSTER_OK;
}

const char *muster_params_registration_away(const struct muster_params_server *server)
{
    const struct muster_params_registration *registration = server->registration;

    return registration != NULL && registration->away.rc != MUSTER_OK ? registration->away.text
                                                                      : NULL;
}

const char *muster_params_registration_reach(const struct muster_params_server *server)
{
    return server->registration->record.server.address;
}

static void on_registry_closed(struct muster_registry *registry)
{
    struct muster_params_registration *registration = muster_registry_data(registry);
    struct muster_params_server *server = registration->server;
    muster_params_registration_fn *closed = registration->closed;

    muster_params_peers_free(registration);
    muster_mem_free(server->env->mem, registration);
    server->registration = NULL;
    closed(server);
}

static void on_revoked(struct muster_registry_op *op, enum muster_rc rc)
{
    struct muster_params_registration *registration = op->data;

    (void)rc; /* the lease ends by itself */
    muster_registry_close(registration->registry, on_registry_closed);
}

void muster_params_registration_close(struct muster_params_server *server,
                                      muster_params_registration_fn *closed)
{
    struct muster_params_registration *registration = server->registration;

    registration->closed = closed;
    registration->is_closing = true;
    muster_task_cancel(&server->decide);
    muster_task_cancel(&registration->look);
    muster_timer_stop(&registration->put_retry);
    muster_timer_stop(&registration->range_retry);
    muster_timer_stop(&registration->turn);
    muster_timer_stop(&registration->lost_look);
    if (registration->is_watching)
        muster_registry_watch_stop(&registration->watch);
    if (registration->has_lease) {
        int64_t lease = registration->lease.id;

        muster_registry_lease_stop(&registration->lease);
        registration->revoke.data = registration;
        if (muster_registry_revoke_start(&registration->revoke, registration->registry, lease,
                                         muster_loop_after_ns(server->env->loop, MUSTER_NS_PER_S),
                                         on_revoked) == MUSTER_OK)
            return;
    }
    muster_registry_close(registration->registry, on_registry_closed);
}
