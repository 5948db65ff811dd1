/* OpenSSL that is initialised while memory lacks: an error that says so, never a crash. Each try is a
 * process of its own, since OpenSSL is initialised once in a process. */
#include "test_env.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <muster/http.h>
#include <muster/tls.h>

#include "assertion_count.h"
#include "net/tls/crypto.h"
#include "net/tls/tls_internal.h"
#include "openssl_memory.h"

/* OpenSSL's own first allocations: without some of these it crashes later. Behind them are those of its
 * tables and providers. */
#define PLACES_FIRST 60u
#define PLACES_STEP  331u
#define PLACES_MAX   3000u

static enum muster_rc make_context(struct muster_env *env, struct muster_error *ret_error)
{
    const struct muster_tls_material material = {.version_min = MUSTER_TLS_VERSION_1_3};
    struct muster_tls_context *context = NULL;
    enum muster_rc rc = muster_tls_context_new(env->mem, &material, &context, ret_error);

    muster_tls_context_free(context);
    return rc;
}

/* Functions without a text say with their code that there is no memory. */
static enum muster_rc error_set(enum muster_rc rc, struct muster_error *ret_error)
{
    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "no memory");
}

static enum muster_rc make_authority(struct muster_env *env, struct muster_error *ret_error)
{
    struct muster_tls_authority *authority = NULL;
    enum muster_rc rc = muster_tls_authority_new(env, "ours", &authority);

    muster_tls_authority_free(authority);
    return error_set(rc, ret_error);
}

static enum muster_rc derive_authority(struct muster_env *env, struct muster_error *ret_error)
{
    static const char secret[MUSTER_TLS_SECRET_BYTES_MIN];
    struct muster_tls_authority *authority = NULL;
    enum muster_rc rc =
        muster_tls_authority_derive(env, "ours", secret, sizeof(secret), &authority);

    muster_tls_authority_free(authority);
    return error_set(rc, ret_error);
}

static enum muster_rc make_digests(struct muster_env *env, struct muster_error *ret_error)
{
    uint8_t mac[MUSTER_SHA256_BYTES];
    struct muster_sha256 sum;
    enum muster_rc rc = muster_sha256_init(&sum);

    (void)env;
    muster_sha256_fini(&sum, NULL);
    if (rc == MUSTER_OK)
        rc = muster_crypto_hmac_sha256("key", 3, "bytes", 5, mac);
    return error_set(rc, ret_error);
}

static enum muster_rc sign_bytes(struct muster_env *env, struct muster_error *ret_error)
{
    uint8_t *signature = NULL;
    size_t count = 0;
    enum muster_rc rc =
        muster_crypto_sign_rs256("no key", "bytes", 5, env->mem, &signature, &count, ret_error);

    return rc == MUSTER_INVALID_ARGUMENT ? MUSTER_OK : rc; /* it has been read, and is none */
}

static enum muster_rc open_http(struct muster_env *env, struct muster_error *ret_error)
{
    struct muster_http *http = NULL;
    enum muster_rc rc = muster_http_curl_open(env, NULL, &http, ret_error);

    if (rc == MUSTER_OK)
        muster_http_close(http, NULL);
    return rc;
}

typedef enum muster_rc use_fn(struct muster_env *env, struct muster_error *ret_error);

/* The results of a try, told before it ended. */
struct verdict {
    enum muster_rc rc;
    bool has_failed; /* the allocation */
    struct muster_error error;
};

/* False: it crashed. */
static bool try_alone(use_fn *use, struct muster_env *env, uint64_t fail_at,
                      struct verdict *ret_verdict)
{
    struct verdict *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = -1;
    pid_t pid;

    assert_ptr_not_equal(shared, MAP_FAILED);
    pid = fork();
    if (pid == 0) {
        openssl_memory_fail_at(fail_at);
        shared->rc = use(env, &shared->error);
        shared->has_failed = openssl_memory_has_failed();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    *ret_verdict = *shared;
    (void)munmap(shared, sizeof(*shared));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void want_of_memory_is_told_from_the_first_use_on(void **state)
{
    static const struct {
        const char *name;
        use_fn *use;
        uint64_t step; /* between those that are tried one after the other */
    } rows[] = {
        {"an authority", make_authority, 1}, {"a derived authority", derive_authority, 5},
        {"a context", make_context, 5},      {"digests", make_digests, 5},
        {"a signature", sign_bytes, 5},      {"an HTTP client", open_http, 5},
    };
    struct test_env *test = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct verdict verdict = {.has_failed = true};
        unsigned told_count = 0;

        for (uint64_t at = 1; at < PLACES_MAX && verdict.has_failed;
             at += at < PLACES_FIRST ? rows[i].step : PLACES_STEP) {
            fail_if(!try_alone(rows[i].use, &test->env, at, &verdict),
                    "%s crashes without allocation %lu", rows[i].name, (unsigned long)at);
            told_count += verdict.rc != MUSTER_OK;
            fail_if(verdict.rc != MUSTER_OK && (verdict.rc != MUSTER_RESOURCE_EXHAUSTED ||
                                                strstr(verdict.error.text, "no memory") == NULL),
                    "%s, without allocation %lu: %d, %s", rows[i].name, (unsigned long)at,
                    (int)verdict.rc, verdict.error.text);
        }
        fail_if(told_count == 0, "%s: never told", rows[i].name);
    }
}

static void the_text_names_openssl(void **state)
{
    static use_fn *const rows[] = {make_context, sign_bytes, open_http};
    struct test_env *test = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct verdict verdict;

        assert_true(try_alone(rows[i], &test->env, 1, &verdict));
        assert_int_equal(verdict.rc, MUSTER_RESOURCE_EXHAUSTED);
        assert_string_equal(verdict.error.text, "OpenSSL cannot be initialised: no memory");
    }
}

static int set_up(void **state)
{
    static struct test_env test;

    test_env_open(&test);
    *state = &test;
    return 0;
}

static int tear_down(void **state)
{
    test_env_close(*state);
    return 0;
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(want_of_memory_is_told_from_the_first_use_on),
        CASE(the_text_names_openssl),
    };

    if (!openssl_memory_take_over())
        return 1;
    return cmocka_run_group_tests_name("crypto_check", tests, NULL, NULL);
}
