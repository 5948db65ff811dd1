/* A command that serves until SIGTERM or SIGINT: environment, signals, the ready line.
 *
 * coordinator.c, registry.c and server.c fill in a struct service_kind and call service_run. The
 * ready line is the first thing on standard output, when the address is open: scripts wait for it.
 * A second of grace at the end lets calls that are under way finish. */
#include "serve/service.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <muster/http.h>
#include <muster/log.h>
#include <muster/rpc.h>
#include <muster/stream.h>
#include <muster/tls.h>

#include "common/command.h"
#include "common/output.h"

#define DRAIN_NS MUSTER_NS_PER_S /* for calls under way, when it ends */

/* The signal handler writes the flags, then wakes the loop, which reads them in on_wake. The flag
 * is set before the wake, so on_wake sees it. */
static struct muster_wake *signal_wake;
static volatile sig_atomic_t is_stop_asked, is_reload_asked;

static void on_signal(int number)
{
    if (number == SIGHUP)
        is_reload_asked = 1;
    else
        is_stop_asked = 1;
    muster_wake_signal(signal_wake);
}

/* Several signals may come, and a lost output stops as well: the first one counts. */
static void service_stop(struct service *service)
{
    if (service->is_closing)
        return;
    service->is_closing = true;
    service->kind->close(service, muster_loop_after_ns(service->env->loop, DRAIN_NS));
}

/* A reload that fails keeps the former certificates. */
static void service_reload(struct service *service)
{
    if (service->tls == NULL)
        MUSTER_LOG(service->env, INFO, "reload_has_nothing_to_read", "signal", "SIGHUP", "reason",
                   "it serves plain text");
    else if (muster_tls_reload(service->tls, NULL) == MUSTER_OK) /* else it has logged why */
        MUSTER_LOG(service->env, INFO, "certificates_read_again", "signal", "SIGHUP");
}

static void on_wake(struct muster_wake *wake)
{
    struct service *service = muster_wake_data(wake);

    if (is_reload_asked && !service->is_closing) {
        is_reload_asked = 0;
        service_reload(service);
    }
    if (is_stop_asked)
        service_stop(service);
}

void service_closed(struct service *service)
{
    MUSTER_ASSERT(service->is_closing && !service->is_closed);
    service->is_closed = true;
}

static void watch_signals(void)
{
    struct sigaction action;

    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGHUP, &action, NULL);
    (void)signal(SIGXFSZ, SIG_IGN); /* a file past its limit is a write that fails */
}

/* The counters are opened first, so that they cover everything that kind->open opens. */
static enum muster_rc status_open(struct service *service, struct muster_error *ret_error)
{
    struct muster_env *env = service->env;
    struct muster_address address;
    enum muster_rc rc;

    if (service->status == NULL && !service->kind->has_own_metrics)
        return MUSTER_OK;
    if (muster_metrics_open(env->mem, &env->metrics) != MUSTER_OK ||
        muster_rpc_metrics_open(env, &env->rpc_metrics) != MUSTER_OK)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    if (service->status == NULL)
        return MUSTER_OK;
    rc = muster_address_parse_listen(service->status, &address, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_http_server_open(env, &address, &service->http_server, ret_error);
    service->is_status_refused = rc != MUSTER_OK;
    return rc;
}

/* The error names the address and the cause; the remedy depends on the option by which it was
 * given. A Unix socket has neither ports nor capabilities. */
void service_tell_listen(const char *name, const char *address_option, const char *port_option,
                         const struct muster_error *error)
{
    if (error->rc == MUSTER_ALREADY_EXISTS)
        fprintf(stderr,
                "muster %s: another process listens there; end it, or choose another %s (port 0 "
                "takes a free one)\n",
                name, port_option);
    else if (error->sys == EADDRNOTAVAIL)
        fprintf(stderr,
                "muster %s: %s must name an address of this machine ('ip address' lists them), "
                "127.0.0.1 for this machine alone, or 0.0.0.0 for every interface\n",
                name, address_option);
    else if (error->sys == EACCES && strncmp(error->text, "listen on ", 10) == 0 &&
             strstr(error->text, "unix:") == NULL)
        fprintf(stderr,
                "muster %s: ports below 1024 need the capability CAP_NET_BIND_SERVICE; choose a %s "
                "from 1024 on (port 0 takes a free one), or grant it\n",
                name, port_option);
}

static void service_tell(const struct service *service, const struct muster_error *error)
{
    const char *address = service->kind->address_option, *port = service->kind->port_option;

    if (service->is_status_refused)
        address = port = "--status";
    service_tell_listen(service->kind->name, address != NULL ? address : "--listen",
                        port != NULL ? port : "--listen", error);
}

static enum muster_rc on_health_check(struct muster_health_check *check,
                                      struct muster_error *ret_error)
{
    struct service *service = check->data;

    return service->kind->check(service, ret_error);
}

/* The process's own metrics, and the health of the service, once there is a service to check. */
static void status_fill(struct service *service)
{
    if (service->env->metrics != NULL)
        process_metrics_open(&service->process, service->env->metrics);
    if (service->http_server == NULL)
        return;
    service->health = (struct muster_health_check){
        .data = service, .name = service->kind->name, .check = on_health_check};
    if (service->kind->check != NULL)
        muster_health_check_add(service->http_server, &service->health);
}

static void status_empty(struct service *service)
{
    if (service->http_server != NULL && service->kind->check != NULL)
        muster_health_check_remove(&service->health);
    if (service->env->metrics != NULL)
        process_metrics_close(&service->process);
}

static void on_status_closed(struct muster_http_server *server)
{
    *(bool *)muster_http_server_data(server) = true;
}

/* The HTTP server answers from the counters, so it goes first. */
static void status_close(struct service *service)
{
    struct muster_env *env = service->env;
    bool is_closed = service->http_server == NULL;

    if (service->http_server != NULL) {
        muster_http_server_set_data(service->http_server, &is_closed);
        muster_http_server_close(service->http_server, on_status_closed);
    }
    while (!is_closed)
        muster_loop_turn(env->loop, UINT64_MAX);
    muster_rpc_metrics_close(env->rpc_metrics);
    muster_metrics_close(env->metrics);
    env->rpc_metrics = NULL;
    env->metrics = NULL;
}

/* Signals are watched before the ready line, so that whoever has read it can stop the service. */
static int serve_until_signal(struct service *service)
{
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    bool is_told;

    signal_wake = service->wake;
    watch_signals();
    status_fill(service);
    printf("listening %s\n", muster_address_format(service->kind->address(service), text));
    if (service->http_server != NULL)
        printf("status http://%s\n",
               muster_address_format(muster_http_server_address(service->http_server), text));
    is_told = output_flush();
    if (!is_told) /* a script that waits for the line would wait for ever */
        service_stop(service);
    else if (service->kind->ready != NULL)
        service->kind->ready(service);
    while (!service->is_closed)
        muster_loop_turn(service->env->loop, UINT64_MAX);
    (void)signal(SIGTERM, SIG_DFL);
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGHUP, SIG_DFL);
    status_empty(service);
    return is_told ? EXIT_OK : EXIT_OTHER;
}

static int serve_in(struct service *service)
{
    const char *name = service->kind->name;
    struct muster_env *env = service->env;
    struct muster_error error = {.rc = MUSTER_OK};
    int code = EXIT_OK;
    enum muster_rc rc = muster_wake_open(env->mem, env->loop, on_wake, service, &service->wake);

    if (rc != MUSTER_OK) {
        fprintf(stderr, "muster %s: no wake descriptor: %s\n", name, muster_rc_text(rc));
        return EXIT_OTHER;
    }
    if (status_open(service, &error) == MUSTER_OK &&
        service->kind->open(service, &error) == MUSTER_OK)
        code = serve_until_signal(service);
    else
        code = command_fail(name, &error);
    service_tell(service, &error);
    muster_loop_turn_closing(env->loop); /* a server that failed to open, too */
    if (service->kind->clean != NULL)
        service->kind->clean(service);
    muster_tls_close(service->tls);
    status_close(service);
    muster_wake_close(service->wake);
    return code;
}

int service_run(struct service *service, const char *log_level, const char *log_format)
{
    enum muster_log_level level = MUSTER_LOG_INFO;
    struct muster_log *log = NULL;
    struct muster_env *env = NULL;
    int code;
    enum muster_rc rc = muster_env_system_open(NULL, &env);

    if (rc != MUSTER_OK) {
        fprintf(stderr, "muster %s: no event loop: %s\n", service->kind->name, muster_rc_text(rc));
        return EXIT_OTHER;
    }
    service->env = env;
    if (muster_log_level_parse(log_level, &level) == MUSTER_OK &&
        muster_log_file_open(env->mem, stderr, strcmp(log_format, "json") == 0, level, &log) ==
            MUSTER_OK)
        env->log = log;
    rc = muster_net_system_open(env, &env->net);
    if (rc == MUSTER_OK) {
        code = serve_in(service);
        muster_net_system_close(env->net);
    } else {
        fprintf(stderr, "muster %s: no network: %s\n", service->kind->name, muster_rc_text(rc));
        code = EXIT_OTHER;
    }
    env->log = NULL;
    muster_log_file_close(log);
    muster_env_system_close(env);
    return code;
}
