/* A command that serves until SIGTERM or SIGINT: environment, signals, the ready line. SIGHUP
 * makes it read its certificates again. */
#ifndef MUSTER_TOOLS_SERVICE_H
#define MUSTER_TOOLS_SERVICE_H

#include <muster/address.h>
#include <muster/env.h>
#include <muster/http.h>
#include <muster/status.h>

#include "common/process_metrics.h"

struct muster_tls;
struct service;

struct service_kind {
    const char *name;                         /* "registry", of `muster registry` */
    const char *address_option, *port_option; /* where it listens; NULL: --listen */
    bool has_own_metrics;                     /* it shows metrics where it listens, too */
    enum muster_rc (*open)(struct service *service, struct muster_error *ret_error);
    /** After a successful open. Borrowed. */
    const struct muster_address *(*address)(struct service *service);
    /** The ready line is out. NULL: nobody asks. */
    void (*ready)(struct service *service);
    /** Begin to close; service_closed follows from the loop. */
    void (*close)(struct service *service, uint64_t deadline_ns);
    /** Whether it can do its work, for /healthz. NULL: it can. */
    enum muster_rc (*check)(struct service *service, struct muster_error *ret_error);
    /** Whatever open has left, also when it failed. NULL: nothing. */
    void (*clean)(struct service *service);
};

struct service {
    const struct service_kind *kind;
    void *settings; /* the command's */
    struct muster_env *env;
    const char *status;     /* where to serve /healthz and /metrics; NULL: nowhere */
    struct muster_tls *tls; /* set by open: its files are read again at SIGHUP. Takes; NULL: none */
    /* private */
    struct muster_http_server *http_server;
    struct muster_wake *wake;
    bool is_status_refused; /* nothing can listen at the address of --status */
    struct muster_health_check health;
    struct process_metrics process;
    bool is_closing;
    bool is_closed;
};

/** Serve. Returns the exit code. */
int service_run(struct service *service, const char *log_level, const char *log_format);
/** The remedy of error: `muster NAME` cannot listen at the address and port of these options. */
void service_tell_listen(const char *name, const char *address_option, const char *port_option,
                         const struct muster_error *error);
/** From the callback of the server's close. */
void service_closed(struct service *service);

#endif
