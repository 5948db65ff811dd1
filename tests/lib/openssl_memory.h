/* OpenSSL's own allocations, of which one fails when a case asks for it. */
#ifndef MUSTER_TEST_OPENSSL_MEMORY_H
#define MUSTER_TEST_OPENSSL_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/** At the start of a program, before OpenSSL is used. False: it was. From then on torture_arm_library reaches
 * OpenSSL, too. */
bool openssl_memory_take_over(void);
/** The fail_at-th allocation from now fails; 0: none. */
void openssl_memory_fail_at(uint64_t fail_at);
/** Allocations since fail_at was called. */
uint64_t openssl_memory_count(void);
/** Blocks that OpenSSL holds. */
uint64_t openssl_memory_held(void);
/** The one that was asked for has failed. Ends the asking. */
bool openssl_memory_has_failed(void);

#endif
