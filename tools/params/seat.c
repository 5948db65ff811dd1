/* A seat with its keeper, its server and a spare.
 *
 * The memory is made and the socket bound before the keeper forks, so that connects wait in the
 * kernel's queue while one server is gone and the next one takes its place. */
#include "params/seat.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <muster/log.h>
#include <muster/stream.h>

#include "common/command.h"

static struct params_seat *seat_of(struct service *service)
{
    return MUSTER_CONTAINER_OF(service, struct params_seat, service);
}

/* --- A child --- */

/* The spare has the seat as soon as this process ends, and before the keeper knows of it. */
static void failure_note(struct params_seat *seat, int code)
{
    atomic_store_explicit(&seat->keeper.board->failure, code, memory_order_relaxed);
}

/* Whoever started it hears of that; the keeper ends with it. */
static void on_failed(struct muster_params_server *server, const struct muster_error *error)
{
    struct service *service = muster_params_server_data(server);

    (void)command_fail("params serve", error);
    failure_note(seat_of(service), EXIT_OTHER);
    fflush(NULL);
    _exit(EXIT_OTHER);
}

/* The keeper ends the seat as at SIGTERM, so that no other process takes it. */
static void on_drain(struct muster_params_server *server)
{
    (void)server;
    (void)kill(getppid(), SIGTERM);
}

static void begun_note(struct params_seat *seat)
{
    atomic_store_explicit(&seat->keeper.board->is_begun, true, memory_order_relaxed);
}

static bool is_begun(const struct params_seat *seat)
{
    return atomic_load_explicit(&seat->keeper.board->is_begun, memory_order_relaxed);
}

static void on_restored(struct muster_params_server *server)
{
    struct service *service = muster_params_server_data(server);

    begun_note(seat_of(service));
}

/* The links and the gRPC door have one credential, that of the environment. */
static enum muster_rc server_open(struct service *service, struct muster_error *ret_error)
{
    struct params_seat *seat = seat_of(service);
    struct muster_params_server_options server = {.listen = &seat->address,
                                                  .seat = seat->seat,
                                                  .job = seat->settings.job,
                                                  .registry = seat->settings.registry,
                                                  .reach = seat->settings.reach,
                                                  .replicas = (uint32_t)seat->settings.replicas,
                                                  .server_count = (uint32_t)seat->settings.expected,
                                                  .source_lease_ns = seat->settings.source_lease_ns,
                                                  .replica_lag_max_ns =
                                                      seat->settings.replica_lag_ns > 0
                                                          ? seat->settings.replica_lag_ns
                                                          : UINT64_MAX,
                                                  .receive_max_bytes = seat->settings.receive_max,
                                                  .failed = on_failed,
                                                  .restored = on_restored,
                                                  .on_drain = on_drain};
    unsigned takes = atomic_load_explicit(&seat->keeper.board->takes, memory_order_relaxed);
    enum muster_rc rc =
        service_tls_open(service->env, &seat->settings.tls, &service->tls, ret_error);

    MUSTER_LOG(service->env, INFO, "params_seat_taken", "takes", takes);
    /* Once that is done, a successor goes on in the memory, or copies from other servers. */
    if (!is_begun(seat))
        server.restore = seat->settings.restore;
    /* Fresh memory that joins again does not begin the job anew. */
    server.is_new_by_force = seat->settings.is_new_by_force && !is_begun(seat) &&
                             (seat->keeper.renew == NULL || takes == 1);
    service->env->tls = service->tls;
    if (rc == MUSTER_OK)
        rc = service_authorization_new(service->env, &seat->settings.tls, &seat->authorization,
                                       ret_error);
    if (rc != MUSTER_OK)
        return rc;
    server.authorization = seat->authorization;
    muster_net_system_adopt(service->env->net, seat->socket);
    rc = muster_params_server_open(service->env, &server, &seat->server, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    seat->has_opened = true;
    muster_params_server_set_data(seat->server, service);
    if (server.registry == NULL)
        begun_note(seat);
    return MUSTER_OK;
}

static enum muster_rc server_check(struct service *service, struct muster_error *ret_error)
{
    return muster_params_server_check(seat_of(service)->server, ret_error);
}

static void server_clean(struct service *service)
{
    service->env->tls = NULL;
    muster_authorization_free(seat_of(service)->authorization);
}

static const struct muster_address *server_address(struct service *service)
{
    return muster_params_server_address(seat_of(service)->server);
}

static void on_closed(struct muster_params_server *server)
{
    service_closed(muster_params_server_data(server));
}

static void server_ready(struct service *service)
{
    (void)service;
    keeper_ready();
}

/* Shards that nobody could take stay in the memory of the seat, which ends with its keeper. */
static void on_drained(struct muster_params_server *server, enum muster_rc rc)
{
    struct service *service = muster_params_server_data(server);

    seat_of(service)->is_undrained = rc != MUSTER_OK;
    muster_params_server_close(server, on_closed);
}

static void server_close(struct service *service, uint64_t deadline_ns)
{
    struct params_seat *seat = seat_of(service);

    (void)deadline_ns; /* of calls under way: giving shards away takes longer */
    muster_params_server_drain(seat->server,
                               muster_loop_after_ns(service->env->loop, seat->settings.drain_ns),
                               on_drained);
}

static const struct service_kind kind = {.name = "params serve",
                                         .open = server_open,
                                         .address = server_address,
                                         .ready = server_ready,
                                         .close = server_close,
                                         .check = server_check,
                                         .clean = server_clean};

static int seat_serve(struct keeper *keeper)
{
    struct params_seat *seat = keeper->data;
    struct muster_error error;
    int code;

    if (muster_params_seat_take(seat->seat, &error) != MUSTER_OK)
        return command_fail(keeper->name, &error);
    code = atomic_load_explicit(&keeper->board->failure, memory_order_relaxed);
    if (code != EXIT_OK)
        return code;
    keeper_listen(keeper);
    keeper_taken(keeper);
    code = service_run(&seat->service, seat->settings.log_level, seat->settings.log_format);
    if (code == EXIT_OK && seat->is_undrained)
        code = EXIT_OTHER;
    if (code != EXIT_OK &&
        (seat->has_opened || !atomic_load_explicit(&keeper->board->is_told, memory_order_relaxed)))
        failure_note(seat, code);
    muster_params_seat_free(seat->seat);
    return code;
}

/* --- The keeper --- */

static enum muster_rc memory_new(struct params_seat *seat, struct muster_error *ret_error)
{
    const struct muster_params_seat_options options = {.memory_max = seat->settings.memory_max,
                                                       .shard_count =
                                                           (uint32_t)seat->settings.shard_count,
                                                       .has_anchor = true};

    return muster_params_seat_new(&options, &seat->seat, ret_error);
}

/* Where other servers have copies, they go on without a server that has died: its memory is of no use any
 * more, and the next process joins with an empty one. */
static bool seat_renew(struct keeper *keeper)
{
    struct params_seat *seat = keeper->data;
    struct muster_error error;

    params_seat_forget(seat);
    if (memory_new(seat, &error) == MUSTER_OK)
        return true;
    (void)command_fail(keeper->name, &error);
    return false;
}

static enum muster_rc socket_bind(struct params_seat *seat, const struct muster_address *wanted,
                                  struct muster_error *ret_error)
{
    enum muster_rc rc = muster_net_system_bind(wanted, &seat->socket, ret_error);

    if (rc == MUSTER_OK && muster_net_system_bound(seat->socket, &seat->address) != MUSTER_OK)
        rc = muster_error_set_sys(ret_error, MUSTER_UNAVAILABLE, errno,
                                  "the socket's address cannot be read");
    return rc;
}

enum muster_rc params_seat_open(struct params_seat *seat,
                                const struct params_seat_settings *settings,
                                struct muster_error *ret_error)
{
    bool has_copies = settings->replicas > 1;
    struct muster_address wanted;
    enum muster_rc rc = muster_address_parse_listen(settings->listen, &wanted, ret_error);

    memset(seat, 0, sizeof(*seat));
    seat->settings = *settings;
    seat->socket = -1;
    seat->keeper = (struct keeper){.serve = seat_serve,
                                   .name = "params serve",
                                   .data = seat,
                                   .renew = has_copies ? seat_renew : NULL,
                                   .has_spare = settings->has_spare && !has_copies};
    seat->service.kind = &kind;
    seat->service.status = settings->status;
    if (rc == MUSTER_OK)
        rc = socket_bind(seat, &wanted, ret_error);
    if (rc == MUSTER_OK)
        rc = memory_new(seat, ret_error);
    if (rc == MUSTER_OK)
        rc = keeper_init(&seat->keeper, ret_error);
    return rc;
}

void params_seat_forget(struct params_seat *seat)
{
    muster_params_seat_free(seat->seat);
    seat->seat = NULL;
}

void params_seat_close(struct params_seat *seat)
{
    keeper_fini(&seat->keeper);
    params_seat_forget(seat);
    if (seat->socket >= 0)
        close(seat->socket);
}
