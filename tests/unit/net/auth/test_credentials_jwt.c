/* The assertion of a service account: whole, or an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "net/auth/credentials_jwt.h"
#include "tests/lib/fake_identity.h"

static char *private_pem, *public_pem;

static struct muster_jwt make_jwt(void)
{
    return (struct muster_jwt){.issuer = "robot@p.example",
                               .scope = "scope",
                               .audience = "https://a.test/token",
                               .key_id = "k1",
                               .key_pem = private_pem,
                               .wall_ns = 1};
}

static size_t part_bytes(const char **at)
{
    size_t size = strcspn(*at, ".");

    *at += size + ((*at)[size] == '.');
    return size;
}

static void whatever_allocation_fails_no_part_is_left_out(void **state)
{
    struct muster_mem_limited mem;
    const struct muster_jwt jwt = make_jwt();
    uint64_t fail_at = 0;
    bool has_failed = true;

    (void)state;
    muster_mem_limited_init(&mem, muster_mem_system(), 0);
    while (has_failed) {
        struct muster_error error = {.rc = MUSTER_OK};
        char *text = NULL;
        enum muster_rc rc;

        mem.fail_at = ++fail_at;
        rc = muster_jwt_sign(&jwt, &mem.mem, &text, &error);
        has_failed = mem.fail_at == 0;
        mem.fail_at = 0;
        if (rc == MUSTER_OK) {
            const char *at = text;

            assert_true(part_bytes(&at) > 20);      /* the header */
            assert_true(part_bytes(&at) > 40);      /* the claims */
            assert_int_equal(part_bytes(&at), 342); /* 256 bytes */
            assert_int_equal(*at, '\0');
        } else {
            assert_true(has_failed);
            assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
            assert_int_equal(error.rc, rc);
            assert_null(text);
        }
        muster_mem_free(&mem.mem, text);
        assert_int_equal(mem.block_count, 0);
    }
    assert_true(fail_at > 4);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
}

static void what_is_no_key_signs_nothing(void **state)
{
    struct muster_jwt jwt = make_jwt();
    struct muster_error error = {.rc = MUSTER_OK};
    char *text = NULL;

    (void)state;
    jwt.key_pem = public_pem;

    assert_int_equal(muster_jwt_sign(&jwt, muster_mem_system(), &text, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(error.rc, MUSTER_INVALID_ARGUMENT);
    assert_null(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_allocation_fails_no_part_is_left_out),
        cmocka_unit_test(what_is_no_key_signs_nothing),
    };
    int failed_count;

    if (!fake_rsa_key_new(&private_pem, &public_pem))
        return 1;
    failed_count = cmocka_run_group_tests_name("credentials_jwt", tests, NULL, NULL);
    free(private_pem);
    free(public_pem);
    return failed_count;
}
