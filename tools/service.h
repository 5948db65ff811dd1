/* A command that serves until SIGTERM or SIGINT: environment, signals, the ready line. */
#ifndef MUSTER_TOOLS_SERVICE_H
#define MUSTER_TOOLS_SERVICE_H

#include <muster/address.h>
#include <muster/env.h>
#include <muster/status.h>

struct muster_http_server;
struct service;

struct service_kind {
    const char *name; /* "registry", of `muster registry` */
    enum muster_rc (*open)(struct service *service, struct muster_error *ret_error);
    /** After a successful open. Borrowed. */
    const struct muster_address *(*address)(struct service *service);
    /** Begin to close; service_closed follows from the loop. */
    void (*close)(struct service *service, uint64_t deadline_ns);
    /** Whatever open has left, also when it failed. NULL: nothing. */
    void (*clean)(struct service *service);
};

struct service {
    const struct service_kind *kind;
    void *settings; /* the command's */
    struct muster_env *env;
    const char *status; /* where to serve /healthz and /metrics; NULL: nowhere */
    /* private */
    struct muster_http_server *http_server;
    struct muster_wake *wake;
    bool is_closing;
    bool is_closed;
};

/** Serve. Returns the exit code. */
int service_run(struct service *service, const char *log_level);
void service_closed(struct service *service);

#endif
