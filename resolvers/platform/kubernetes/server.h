/* The Kubernetes API server: its address, its authority, our credentials. */
#ifndef MUSTER_RESOLVERS_KUBERNETES_SERVER_H
#define MUSTER_RESOLVERS_KUBERNETES_SERVER_H

#include <muster/credentials.h>
#include <muster/http.h>
#include <muster/platforms.h>

#include "resolvers/platform/kubernetes/kubeconfig.h"

struct muster_kubernetes_server {
    struct muster_env *env;
    char *base_url;                         /* without a slash at the end */
    char *name_space;                       /* NULL: all */
    char *ca_file;                          /* NULL: see config, else the system's */
    struct muster_http_tls tls;             /* borrows the texts here */
    struct muster_credentials *credentials; /* NULL: none */
    struct muster_kubeconfig config;        /* all zero: not used */
    char source[96];                        /* "in-cluster API server", for people */
};

/** Owns what it makes; fini after its credentials are closed. Errors: see
 * muster_kubernetes_resolver_open. */
MUSTER_MUST_CHECK enum muster_rc muster_kubernetes_server_init(
    struct muster_kubernetes_server *server, struct muster_env *env,
    const struct muster_kubernetes_resolver_options *options, struct muster_error *ret_error);
/** Credentials must have been closed (and set to NULL) before. */
void muster_kubernetes_server_fini(struct muster_kubernetes_server *server);

/** One listing, or the watch that goes on from its version. */
struct muster_kubernetes_query {
    const char *selector;
    const char *continue_mark; /* "" or NULL: the first page */
    const char *watch_version; /* NULL: a list */
    uint32_t timeout_s;        /* of a watch */
};

/** The URL that asks for pods. Gives, from env->mem; NULL: no memory. */
char *muster_kubernetes_url_format(const struct muster_kubernetes_server *server,
                                   const struct muster_kubernetes_query *query);

/** Fill what every call to the server has: TLS, credentials, headers, source. Borrows server. */
void muster_kubernetes_call_prepare(const struct muster_kubernetes_server *server,
                                    struct muster_http_call *call);

#endif
