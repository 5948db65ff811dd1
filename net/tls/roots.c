/* Libraries know the certificates of public authorities by the path of the distribution for which they were built.
 * A program that has them inside, such as that of a Python wheel, also runs on others. */
#include "net/tls/roots.h"

#include <stddef.h>
#include <unistd.h>

/* As Go's crypto/x509 (root_linux.go) has them. */
static const char *const distributions[] = {
    "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Ubuntu, Arch, Gentoo */
    "/etc/pki/tls/certs/ca-bundle.crt",                  /* Fedora, RHEL 6 */
    "/etc/ssl/ca-bundle.pem",                            /* openSUSE */
    "/etc/pki/tls/cacert.pem",                           /* OpenELEC */
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* RHEL 7 and newer */
    "/etc/ssl/cert.pem",                                 /* Alpine */
    NULL,
};

const char *muster_tls_roots_first(const char *const *files)
{
    for (; *files != NULL; files++)
        if (access(*files, R_OK) == 0)
            return *files;
    return NULL;
}

const char *muster_tls_roots_find(const char *built_in)
{
    const char *const first[] = {built_in, NULL};
    const char *found = muster_tls_roots_first(first);

    return found != NULL ? found : muster_tls_roots_first(distributions);
}
