/* grpc.health.v1: a list of names with their statuses, and the calls that watch them
 * (grpc/doc/health-checking.md, gRPC A17). The program sets statuses; Check, List and Watch show
 * them. It is a part of its server and ends with it. */
#include <muster/rpc.h>

#include <string.h>

#include "net/grpc/server/rpc_server_internal.h"

#include "proto/health.muster.h"

/* A watch costs a stream that never ends, and each change a walk over all watches. */
#define WATCHERS_MAX 1000
/* health.proto allows a server to refuse a list of more than 100. */
#define LIST_MAX 100
/* Names come from clients, and are kept while their watch is open. */
#define NAME_BYTES_MAX 1024

struct muster_rpc_health {
    struct muster_rpc_part part;
    struct muster_env *env;
    struct muster_list services; /* of struct known */
    struct muster_list watchers;
    size_t service_count, watcher_count;
    bool is_shut_down;
};

/* A service of the list; its name lies after the record. */
struct known {
    struct muster_list node;
    enum muster_health_status status;
    char name[];
};

/* This is an open Watch; told is the status that its client knows. */
struct watcher {
    struct muster_list node;
    struct muster_rpc *rpc;
    enum muster_health_status told;
    bool has_been_told;
    char name[];
};

static struct known *known_of(struct muster_list *node)
{
    return MUSTER_CONTAINER_OF(node, struct known, node);
}

static struct known *find_service(const struct muster_rpc_health *health, const char *name)
{
    MUSTER_LIST_EACH(&health->services, known, struct known, node) {
        if (strcmp(known->name, name) == 0)
            return known;
    }
    return NULL;
}

/* A client that reads slowly misses changes, but not the last one: nothing is queued behind an
 * answer that waits. */
static void tell_watcher(struct muster_rpc_health *health, struct watcher *watcher)
{
    /* health.proto: a Watch of an unknown name stays open, and hears when the name comes. */
    const struct known *known = find_service(health, watcher->name);
    enum muster_health_status status =
        known != NULL ? known->status : MUSTER_HEALTH_SERVICE_UNKNOWN;
    Grpc__Health__V1__HealthCheckResponse response;

    if (watcher->has_been_told && watcher->told == status)
        return;
    if (muster_rpc_queued_bytes(watcher->rpc) > 0) /* on_writable comes back to it */
        return;
    watcher->has_been_told = true;
    watcher->told = status;
    grpc__health__v1__health_check_response__init(&response);
    response.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)status;
    (void)grpc_health_v1_health_watch_reply(watcher->rpc, &response);
}

static void tell_all(struct muster_rpc_health *health, const char *name)
{
    MUSTER_LIST_EACH_SAFE(&health->watchers, watcher, struct watcher, node) {
        if (name == NULL || strcmp(watcher->name, name) == 0)
            tell_watcher(health, watcher);
    }
}

/* Methods. */

/* health.proto: unlike Watch, Check ends with NOT_FOUND for an unknown name. */
static void on_check(struct muster_rpc *rpc, const Grpc__Health__V1__HealthCheckRequest *request)
{
    const struct known *known = find_service(muster_rpc_service(rpc), request->service);
    Grpc__Health__V1__HealthCheckResponse response;

    if (known == NULL) {
        muster_rpc_finish(rpc, MUSTER_NOT_FOUND, "unknown service");
        return;
    }
    grpc__health__v1__health_check_response__init(&response);
    response.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)known->status;
    (void)grpc_health_v1_health_check_reply(rpc, &response);
}

static void on_list(struct muster_rpc *rpc, const Grpc__Health__V1__HealthListRequest *request)
{
    struct muster_rpc_health *health = muster_rpc_service(rpc);
    Grpc__Health__V1__HealthListResponse__StatusesEntry entries[LIST_MAX], *rows[LIST_MAX];
    Grpc__Health__V1__HealthCheckResponse values[LIST_MAX];
    Grpc__Health__V1__HealthListResponse response;

    (void)request;
    if (health->service_count > LIST_MAX) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED,
                          "the list would have more than 100 services: use Check");
        return;
    }
    grpc__health__v1__health_list_response__init(&response);
    response.statuses = rows;
    MUSTER_LIST_EACH(&health->services, known, struct known, node) {
        size_t at = response.n_statuses++;

        grpc__health__v1__health_check_response__init(&values[at]);
        values[at].status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)known->status;
        grpc__health__v1__health_list_response__statuses_entry__init(&entries[at]);
        entries[at].key = known->name;
        entries[at].value = &values[at];
        rows[at] = &entries[at];
    }
    (void)grpc_health_v1_health_list_reply(rpc, &response);
}

static void on_watch(struct muster_rpc *rpc, const Grpc__Health__V1__HealthCheckRequest *request)
{
    struct muster_rpc_health *health = muster_rpc_service(rpc);
    size_t length = strlen(request->service);
    struct watcher *watcher = NULL;

    if (health->watcher_count >= WATCHERS_MAX) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "too many Watch calls are open");
        return;
    }
    if (length > NAME_BYTES_MAX) {
        muster_rpc_finish(rpc, MUSTER_INVALID_ARGUMENT, "the name is longer than 1024 bytes");
        return;
    }
    watcher = muster_mem_alloc_zero(health->env->mem, 1, sizeof(*watcher) + length + 1);
    if (watcher == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    memcpy(watcher->name, request->service, length + 1);
    watcher->rpc = rpc;
    muster_rpc_set_data(rpc, watcher);
    muster_list_append(&health->watchers, &watcher->node);
    health->watcher_count++;
    tell_watcher(health, watcher);
}

static void on_watch_writable(struct muster_rpc *rpc)
{
    if (muster_rpc_data(rpc) != NULL)
        tell_watcher(muster_rpc_service(rpc), muster_rpc_data(rpc));
}

static void on_watch_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct muster_rpc_health *health = muster_rpc_service(rpc);
    struct watcher *watcher = muster_rpc_data(rpc);

    (void)rc;
    if (watcher == NULL)
        return;
    MUSTER_ASSERT(health->watcher_count > 0);
    muster_list_remove(&watcher->node);
    health->watcher_count--;
    muster_mem_free(health->env->mem, watcher);
}

/* Statuses. */

static enum muster_rc service_add(struct muster_rpc_health *health, const char *name,
                                  enum muster_health_status status)
{
    size_t length = strlen(name);
    struct known *known;

    if (length > NAME_BYTES_MAX)
        return MUSTER_INVALID_ARGUMENT;
    known = muster_mem_alloc_zero(health->env->mem, 1, sizeof(*known) + length + 1);
    if (known == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    memcpy(known->name, name, length + 1);
    known->status = status;
    muster_list_append(&health->services, &known->node);
    health->service_count++;
    return MUSTER_OK;
}

static void known_forget(struct muster_rpc_health *health, struct known *known)
{
    MUSTER_ASSERT(health->service_count > 0);
    muster_list_remove(&known->node);
    health->service_count--;
    muster_mem_free(health->env->mem, known);
}

enum muster_rc muster_rpc_health_set(struct muster_rpc_health *health, const char *service,
                                     enum muster_health_status status)
{
    struct known *known = find_service(health, service);
    enum muster_rc rc = MUSTER_OK;

    /* After the shut down nothing serves any more, whatever the program says (grpc-java and grpc-go
     * do the same). */
    if (health->is_shut_down)
        return MUSTER_OK;
    if (status == MUSTER_HEALTH_SERVICE_UNKNOWN) {
        if (known != NULL)
            known_forget(health, known);
    } else if (known != NULL) {
        known->status = status;
    } else {
        rc = service_add(health, service, status);
    }
    tell_all(health, service);
    return rc;
}

void muster_rpc_health_shut_down(struct muster_rpc_health *health)
{
    health->is_shut_down = true;
    MUSTER_LIST_EACH(&health->services, known, struct known, node)
        known->status = MUSTER_HEALTH_NOT_SERVING;
    tell_all(health, NULL);
}

/* The server's part. */

/* Watchers hear NOT_SERVING and then the end, so that clients go elsewhere before the connection is
 * gone; their calls would otherwise hold up the drain. */
static void on_closing(struct muster_rpc_part *part)
{
    struct muster_rpc_health *health = MUSTER_CONTAINER_OF(part, struct muster_rpc_health, part);

    muster_rpc_health_shut_down(health);
    MUSTER_LIST_EACH_SAFE(&health->watchers, watcher, struct watcher, node)
        muster_rpc_finish(watcher->rpc, MUSTER_UNAVAILABLE, "the server is closing");
}

static void on_closed(struct muster_rpc_part *part)
{
    struct muster_rpc_health *health = MUSTER_CONTAINER_OF(part, struct muster_rpc_health, part);
    struct muster_list *node;

    while ((node = health->services.next) != &health->services)
        known_forget(health, known_of(node));
    muster_mem_free(health->env->mem, health);
}

enum muster_rc muster_rpc_health_open(struct muster_rpc_server *server,
                                      struct muster_rpc_health **ret_health)
{
    const struct grpc_health_v1_health_handlers handlers = {
        .check = {.on_request = on_check},
        .list = {.on_request = on_list},
        .watch = {.on_request = on_watch, .on_writable = on_watch_writable, .on_end = on_watch_end},
    };
    struct muster_rpc_health *health = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*health));
    enum muster_rc rc;

    if (health == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    health->env = server->env;
    health->part = (struct muster_rpc_part){.on_closing = on_closing, .on_closed = on_closed};
    muster_list_init(&health->services);
    muster_list_init(&health->watchers);
    /* health-checking.md: the empty name stands for the whole server. */
    rc = service_add(health, "", MUSTER_HEALTH_SERVING);
    if (rc == MUSTER_OK)
        rc = grpc_health_v1_health_service_add(server, &handlers, health);
    if (rc != MUSTER_OK) {
        on_closed(&health->part);
        return rc;
    }
    muster_list_append(&server->parts, &health->part.node);
    if (ret_health != NULL)
        *ret_health = health;
    return MUSTER_OK;
}
