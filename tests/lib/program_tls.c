/* --tls-* flags of programs that tests and benchmarks start. */
#include "program_tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *flag_value(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    }
    return NULL;
}

struct muster_tls *program_tls_open(struct muster_env *env, int argc, char **argv)
{
    const char *client_ca = flag_value(argc, argv, "--tls-client-ca");
    struct muster_tls_options options = {.cert_file = flag_value(argc, argv, "--tls-cert"),
                                         .key_file = flag_value(argc, argv, "--tls-key"),
                                         .ca_file = flag_value(argc, argv, "--tls-ca"),
                                         .is_peer_required = client_ca != NULL};
    struct muster_tls *tls = NULL;
    struct muster_error error;

    if (client_ca != NULL)
        options.ca_file = client_ca;
    if (options.cert_file == NULL && options.key_file == NULL && options.ca_file == NULL)
        return NULL;
    if (muster_tls_open(env, &options, &tls, &error) != MUSTER_OK) {
        fprintf(stderr, "%s: %s\n", argv[0], error.text);
        exit(1);
    }
    return tls;
}
