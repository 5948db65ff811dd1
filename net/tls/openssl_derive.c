/* A key pair that follows from a secret and a name, by OpenSSL. Several machines that share a
 * secret so get the same authority without talking to each other
 * (docs/decisions/2026-11-22-a-secret-of-several-machines.md). The steps and their constants must
 * never change: an older release would get another key. */
#include "net/tls/openssl.h"

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/kdf.h>
#include <openssl/param_build.h>

#define SALT        "muster tls authority 1" /* another number: another key of the same secret */
#define DRAWN_BYTES 40 /* 64 bits more than the order: FIPS 186-5 A.2.1, extra random bits */
#define POINT_BYTES 65 /* of P-256, uncompressed */

/* HKDF (RFC 5869) with SHA-256. */
static bool draw_hash(const char *name, const void *secret, size_t secret_bytes,
                      uint8_t out[DRAWN_BYTES])
{
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, OSSL_KDF_NAME_HKDF, NULL);
    EVP_KDF_CTX *context = kdf != NULL ? EVP_KDF_CTX_new(kdf) : NULL;
    char digest[] = "SHA2-256";
    char salt[] = SALT;
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)secret,
                                          secret_bytes),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt, sizeof(salt) - 1),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)(uintptr_t)name,
                                          strlen(name)),
        OSSL_PARAM_construct_end(),
    };
    bool is_drawn = context != NULL && EVP_KDF_derive(context, out, DRAWN_BYTES, params) == 1;

    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    return is_drawn;
}

/* FIPS 186-5 A.2.1: drawn mod (order - 1) + 1, from 1 to order - 1. The 64 bits more than the order
 * has make the result as good as uniform. */
static bool reduce_to_order(const uint8_t drawn[DRAWN_BYTES], const EC_GROUP *group,
                            BIGNUM *ret_number)
{
    BN_CTX *context = BN_CTX_secure_new();
    BIGNUM *order = BN_secure_new(), *all = BN_secure_new();
    bool is_reduced = context != NULL && order != NULL && all != NULL &&
                      BN_copy(order, EC_GROUP_get0_order(group)) != NULL &&
                      BN_sub_word(order, 1) == 1 && BN_bin2bn(drawn, DRAWN_BYTES, all) != NULL &&
                      BN_mod(ret_number, all, order, context) == 1 &&
                      BN_add_word(ret_number, 1) == 1;

    BN_clear_free(all);
    BN_clear_free(order);
    BN_CTX_free(context);
    return is_reduced;
}

static EVP_PKEY *from_parts(const BIGNUM *number, const uint8_t point[POINT_BYTES])
{
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
    OSSL_PARAM *params = NULL;
    EVP_PKEY *key = NULL;

    if (build != NULL && context != NULL &&
        OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, MUSTER_TLS_CURVE, 0) ==
            1 &&
        OSSL_PARAM_BLD_push_octet_string(build, OSSL_PKEY_PARAM_PUB_KEY, point, POINT_BYTES) == 1 &&
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_PRIV_KEY, number) == 1)
        params = OSSL_PARAM_BLD_to_param(build);
    if (params == NULL || EVP_PKEY_fromdata_init(context) != 1 ||
        EVP_PKEY_fromdata(context, &key, EVP_PKEY_KEYPAIR, params) != 1)
        key = NULL;
    OSSL_PARAM_free(params);
    OSSL_PARAM_BLD_free(build);
    EVP_PKEY_CTX_free(context);
    return key;
}

EVP_PKEY *muster_tls_openssl_derive(const char *name, const void *secret, size_t secret_bytes)
{
    EC_GROUP *group = EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1);
    EC_POINT *point = group != NULL ? EC_POINT_new(group) : NULL;
    BIGNUM *number = BN_secure_new();
    uint8_t drawn[DRAWN_BYTES], public[POINT_BYTES];
    EVP_PKEY *key = NULL;

    if (point != NULL && number != NULL && draw_hash(name, secret, secret_bytes, drawn) &&
        reduce_to_order(drawn, group, number) &&
        EC_POINT_mul(group, point, number, NULL, NULL, NULL) == 1 &&
        EC_POINT_point2oct(group, point, POINT_CONVERSION_UNCOMPRESSED, public, sizeof(public),
                           NULL) == sizeof(public))
        key = from_parts(number, public);
    OPENSSL_cleanse(drawn, sizeof(drawn));
    BN_clear_free(number);
    EC_POINT_free(point);
    EC_GROUP_free(group);
    return key;
}
