/* The few things that need OpenSSL beside TLS. */
#ifndef MUSTER_NET_CRYPTO_H
#define MUSTER_NET_CRYPTO_H

#include <muster/mem.h>
#include <muster/status.h>

#define MUSTER_CRYPTO_RSA_BITS_MIN 2048

/** OpenSSL's own set-up, which must be whole before anything else of OpenSSL is called: without its library
 * context many of its functions crash. All that use OpenSSL, libcurl's owner too, call it first; what is set up
 * stays. OpenSSL tries some of it only once in a process. Errors: RESOURCE_EXHAUSTED, FAILED_PRECONDITION
 * (its configuration). Thread: any. */
MUSTER_MUST_CHECK enum muster_rc muster_crypto_check(struct muster_error *ret_error);
/** Empties OpenSSL's queue of errors; they tell of no memory, or there was none even for them. */
bool muster_crypto_is_starved(void);

/** RSASSA-PKCS1-v1_5 with SHA-256 (RFC 8017 8.2; "RS256" of RFC 7518 3.3) of size bytes under a private key in
 * PEM. Gives the signature. Errors: INVALID_ARGUMENT (no RSA key of MUSTER_CRYPTO_RSA_BITS_MIN bits or more, or
 * one after a pass phrase), RESOURCE_EXHAUSTED, INTERNAL; no text holds a part of the key. */
MUSTER_MUST_CHECK enum muster_rc muster_crypto_sign_rs256(const char *key_pem, const void *bytes,
                                                          size_t size, struct muster_mem *mem,
                                                          uint8_t **ret_signature,
                                                          size_t *ret_signature_bytes,
                                                          struct muster_error *ret_error);
/** SHA-256 (FIPS 180-4) of bytes that come piece by piece. Caller's memory; every init is paired with one fini. */
struct muster_sha256 {
    void *impl;
};
#define MUSTER_SHA256_BYTES 32
/** Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_sha256_init(struct muster_sha256 *sum);
void muster_sha256_update(struct muster_sha256 *sum, const void *bytes, size_t size);
/** ret_digest NULL: it is not wanted any more. Idempotent. */
void muster_sha256_fini(struct muster_sha256 *sum, uint8_t *ret_digest);

/** HMAC (RFC 2104) with SHA-256. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_crypto_hmac_sha256(const void *key, size_t key_bytes,
                                                           const void *bytes, size_t size,
                                                           uint8_t ret_mac[MUSTER_SHA256_BYTES]);
/** Takes as long whatever differs. */
bool muster_crypto_is_equal(const void *a, const void *b, size_t size);

#endif
