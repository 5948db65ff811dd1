/* The address and credentials of a Kubernetes API server, from kubectl's configuration files. */
#ifndef MUSTER_RESOLVERS_KUBECONFIG_H
#define MUSTER_RESOLVERS_KUBECONFIG_H

#include <muster/env.h>
#include <muster/status.h>

#define MUSTER_KUBECONFIG_FILES_MAX 16

/** The settings of one context. All texts are owned; NULL: not given. */
struct muster_kubeconfig {
    struct muster_mem *mem;
    char *context;     /* its name */
    char *server;      /* "https://host:port" without a slash at the end */
    char *server_name; /* tls-server-name */
    bool is_insecure_skip_verify;
    char *ca_file; /* absolute, or relative to the working directory */
    char *ca_pem;
    char *cert_file;
    char *cert_pem;
    char *key_file;
    char *key_pem;
    char *token;
    char *token_file;
    char *username; /* HTTP basic authentication */
};

/** One file's text. */
struct muster_kubeconfig_file {
    const char *path; /* names it in errors; relative paths inside start in its folder */
    const char *text;
    size_t size;
};

/**
 * Read the context out of files in YAML or JSON; of entries with one name the first counts, as with
 * kubectl.
 *
 * Owns:    borrows all during the call; *ret_config is to be given to muster_kubeconfig_fini.
 * Errors:  INVALID_ARGUMENT: malformed, or a part that the context names is missing; NOT_FOUND: no such
 *          context; UNIMPLEMENTED: the user needs an exec plug-in or an auth-provider (the text says
 *          what to do); each names the file and the entry. Never shows a secret.
 */
MUSTER_MUST_CHECK enum muster_rc muster_kubeconfig_parse(struct muster_mem *mem,
                                                         const struct muster_kubeconfig_file *files,
                                                         size_t file_count, const char *context,
                                                         struct muster_kubeconfig *ret_config,
                                                         struct muster_error *ret_error);

/**
 * As muster_kubeconfig_parse, of `path`, or when that is NULL of the files that KUBECONFIG lists
 * (parted by ':'; those that do not exist are passed over), or when that is unset of ~/.kube/config.
 *
 * Errors:  also NOT_FOUND: none of the files exists.
 */
MUSTER_MUST_CHECK enum muster_rc muster_kubeconfig_load(struct muster_env *env, const char *path,
                                                        const char *context,
                                                        struct muster_kubeconfig *ret_config,
                                                        struct muster_error *ret_error);

/** All zero is accepted. Secrets are wiped. */
void muster_kubeconfig_fini(struct muster_kubeconfig *config);

#endif
