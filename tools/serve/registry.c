/* muster registry: the embedded registry as a process of its own.
 *
 * The store may be a file, which one process serves at a time. TLS comes from certificates of the
 * user, or with --tls-secret from the authority of one job. service.c runs it; this file has its
 * options and how it is opened. */
#include "common/command.h"
#include "serve/serve.h"

#include <string.h>

#include <muster/log.h>
#include <muster/registry_server.h>

#include "serve/data_owner.h"
#include "common/job_tls.h"
#include "serve/registry_files.h"
#include "serve/service.h"
#include "serve/service_tls.h"

struct settings {
    const char *listen;
    const char *data;
    const char *advertise_url;
    const char *name;
    const char *log_level, *log_format;
    const char *status;
    uint64_t quota_bytes;
    bool is_durable;
    struct service_tls_settings tls;
    const char *tls_secret, *job;
};

/* The URL goes to clients as it is, so it must have a scheme, a host and a port that they can use.
 */
static bool check_url(const char *text, struct muster_error *ret_error)
{
    static const char *const schemes[] = {"http://", "https://"};
    struct muster_endpoint endpoint;

    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        size_t length = strlen(schemes[i]);

        if (strncmp(text, schemes[i], length) == 0 &&
            muster_endpoint_parse(text + length, 0, &endpoint, NULL) == MUSTER_OK)
            return true;
    }
    muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                     "must be a URL such as http://host:2379 or https://host:2379, got \"%.80s\"",
                     text);
    return false;
}

static const struct muster_option rows[] = {
    {.name = "listen",
     .letter = 'l',
     .variable = "MUSTER_REGISTRY_LISTEN",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, listen),
     .fallback = "127.0.0.1:2379",
     .check = command_check_listen,
     .value = "HOST:PORT",
     .help = "Address for clients; port 0 takes a free port, ':PORT' listens on every interface."},
    {.name = "data",
     .letter = 'd',
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, data),
     .value = "FILE",
     .help = "Keep all data in this file; by default in memory, until the process ends."},
    {.name = "durable",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_durable),
     .help = "Sync each commit to disk, so that a power failure loses nothing."},
    {.name = "quota",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct settings, quota_bytes),
     .fallback = "2G",
     .min = 1 << 20,
     .help = "Refuse writes once the data reach this size."},
    {.name = "advertise-url",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, advertise_url),
     .check = check_url,
     .value = "URL",
     .help = "URL that the member list gives to clients; by default the listening address."},
    {.name = "name",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, name),
     .fallback = "muster",
     .help = "Name of this registry in the member list."},
    SERVICE_TLS_ROWS(struct settings),
    {.name = "tls-secret",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, tls_secret),
     .value = "FILE",
     .help = "Serve TLS for one job: only members and launchers of 'muster run --tls auto "
             "--tls-secret FILE --job NAME' are accepted."},
    {.name = "job",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, job),
     .value = "NAME",
     .help = "The job of --tls-secret."},
    {.name = "status",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, status),
     .check = command_check_listen,
     .value = "HOST:PORT",
     .help = "Serve /healthz and /metrics (Prometheus) there, over HTTP/1.1; the address is "
             "printed after the ready line."},
    COMMAND_LOG_ROW(struct settings, "info"),
    COMMAND_LOG_FORMAT_ROW(struct settings),
};

const struct muster_options registry_options = {
    .command = "muster registry",
    .usage = "[--listen HOST:PORT] [--data FILE]",
    .about = "Serve the registry (keys, leases, watches) over the etcd v3 API; etcdctl works with "
             "it. 'muster registry backup' and 'muster registry restore' copy its data.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

struct registry {
    struct service service;
    struct muster_registry_store *store;
    struct muster_registry_server *server;
    struct muster_authorization *authorization;
    struct job_tls *job_tls;
};

static struct registry *registry_of(struct service *service)
{
    return MUSTER_CONTAINER_OF(service, struct registry, service);
}

/* Members and launchers of the job are accepted, whatever their names under its authority ("*"). */
static enum muster_rc open_tls(struct service *service, struct muster_tls **ret_tls,
                               struct muster_error *ret_error)
{
    static const struct job_tls_role role = {
        .who = "registry", .alt_names = "IP:127.0.0.1,DNS:localhost", .peers = "*"};
    const struct settings *settings = service->settings;
    const struct job_tls_options options = {.env = service->env,
                                            .job = settings->job,
                                            .secret_file = settings->tls_secret,
                                            .life_ns = JOB_TLS_LIFE_NS};

    if (settings->tls_secret == NULL)
        return service_tls_open(service->env, &settings->tls, ret_tls, ret_error);
    return job_tls_open_role(&options, &role, &registry_of(service)->job_tls, ret_tls, ret_error);
}

static void tell_start(struct service *service)
{
    const struct settings *settings = service->settings;
    struct muster_registry_server *server = registry_of(service)->server;
    struct muster_registry_server_status status;
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    muster_registry_server_status(server, &status);
    MUSTER_LOG(service->env, INFO, "registry_started", "version", MUSTER_VERSION, "address",
               muster_address_format(muster_registry_server_address(server), text), "tls",
               service->tls != NULL ? "yes" : "no", "file",
               settings->data != NULL ? settings->data : "none", "revision", status.revision,
               "keys", status.key_count, "leases", status.lease_count, "quota_bytes",
               status.quota_bytes);
}

static void tell_end(struct service *service)
{
    const struct settings *settings = service->settings;
    struct muster_registry_server_status status;

    muster_registry_server_status(registry_of(service)->server, &status);
    MUSTER_LOG(service->env, INFO, "registry_stopped", "file",
               settings->data != NULL ? settings->data : "none", "revision", status.revision,
               "keys", status.key_count);
}

static enum muster_rc check_registry(struct service *service, struct muster_error *ret_error)
{
    return muster_registry_server_check(registry_of(service)->server, ret_error);
}

/* The order: the owner of the file is named before SQLite finds it locked; TLS and policy are there
 * before the server listens. */
static enum muster_rc open_registry(struct service *service, struct muster_error *ret_error)
{
    struct registry *registry = registry_of(service);
    const struct settings *settings = service->settings;
    struct muster_registry_store_options store_options = {.path = settings->data,
                                                          .is_durable = settings->is_durable,
                                                          .quota_bytes = settings->quota_bytes};
    struct muster_registry_server_options options = {
        .listen = settings->listen, .client_url = settings->advertise_url, .name = settings->name};
    enum muster_rc rc = MUSTER_OK;

    if (settings->data != NULL)
        rc = data_owner_check(settings->data, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_registry_store_open(service->env->mem, &store_options, &registry->store,
                                        ret_error);
    if (rc == MUSTER_OK)
        rc = open_tls(service, &options.tls, ret_error);
    if (rc == MUSTER_OK)
        rc = service_authorization_new(service->env, &settings->tls, &registry->authorization,
                                       ret_error);
    options.authorization = registry->authorization;
    if (rc == MUSTER_OK)
        rc = muster_registry_server_open(service->env, registry->store, &options, &registry->server,
                                         ret_error);
    service->tls = options.tls; /* the server has a share of its own */
    if (rc == MUSTER_OK)
        tell_start(service);
    return rc;
}

static const struct muster_address *address(struct service *service)
{
    return muster_registry_server_address(registry_of(service)->server);
}

static void on_closed(struct muster_registry_server *server)
{
    tell_end(muster_registry_server_data(server));
    service_closed(muster_registry_server_data(server));
}

static void close_registry(struct service *service, uint64_t deadline_ns)
{
    struct registry *registry = registry_of(service);

    muster_registry_server_set_data(registry->server, service);
    muster_registry_server_close(registry->server, deadline_ns, on_closed);
}

/* The server has closed, or never opened: the store has no other user. */
static void registry_clean(struct service *service)
{
    muster_registry_store_close(registry_of(service)->store);
    muster_authorization_free(registry_of(service)->authorization);
    job_tls_close(registry_of(service)->job_tls, false);
}

static const struct service_kind kind = {.name = "registry",
                                         .has_own_metrics = true,
                                         .open = open_registry,
                                         .address = address,
                                         .close = close_registry,
                                         .check = check_registry,
                                         .clean = registry_clean};

int command_registry(int argc, char **argv)
{
    struct settings settings = {.listen = NULL};
    struct registry registry = {.service = {.kind = &kind, .settings = &settings}};
    int code = EXIT_OK;

    if (argc > 1 && strcmp(argv[1], "backup") == 0)
        return command_registry_backup(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "restore") == 0)
        return command_registry_restore(argc - 1, argv + 1);
    if (!command_parse_all(&registry_options, argc, argv, &settings, &code) ||
        !service_tls_check(registry_options.command, &settings.tls, &code) ||
        !job_tls_check(registry_options.command, settings.tls_secret, settings.job, &code))
        return code;
    if (settings.tls_secret != NULL && settings.tls.cert != NULL)
        return command_refuse(registry_options.command,
                              "--tls-cert must not be given with --tls-secret, which makes the "
                              "certificates; leave out --tls-cert, --tls-key and --tls-client-ca");
    registry.service.status = settings.status;
    return service_run(&registry.service, settings.log_level, settings.log_format);
}
