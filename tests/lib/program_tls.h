/* --tls-* flags of programs that tests and benchmarks start. */
#ifndef MUSTER_TEST_PROGRAM_TLS_H
#define MUSTER_TEST_PROGRAM_TLS_H

#include <muster/tls.h>

/** --tls-cert FILE --tls-key FILE --tls-ca FILE, and for servers --tls-client-ca FILE (demands
 * certificates). NULL: none of them was given. Ends the program where they cannot be used. Gives. */
struct muster_tls *program_tls_open(struct muster_env *env, int argc, char **argv);

#endif
