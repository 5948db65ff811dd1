/* Descriptors that a worker inherits from its launcher. */
#include "run/state/worker_fds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 32

static bool is_inherited(const char *variable)
{
    const char *path = getenv(variable);
    char inherited[PATH_BYTES];

    snprintf(inherited, sizeof(inherited), RUN_INHERITED_FMT, RUN_TLS_FD);
    return path != NULL && strcmp(path, inherited) == 0;
}

bool run_worker_fds_have_tls(void)
{
    return is_inherited("MUSTER_TLS_CERT_FILE") || is_inherited("MUSTER_REGISTRY_CERT_FILE");
}
