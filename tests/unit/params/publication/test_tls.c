/* Publishers and readers under TLS: who they are is told by certificates, and a policy says who may read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "publication_stand.h"
#include "scene_case.h"

#include <string.h>

#define TRAINER "spiffe://test/job/7/task/trainer"
#define READER  "spiffe://test/job/7/task/reader"

static struct fake_authority *authority;
static struct fake_cert trainer_cert, reader_cert;

SCENE_CASES(struct publication_stand, publication_stand_open, publication_stand_close)

/* A publication under TLS with a version. */
static void version_publish(struct publication_stand *stand, const char *policy)
{
    publication_stand_secure(stand, authority, &trainer_cert, &reader_cert);
    if (policy != NULL)
        publication_stand_authorize(stand, policy);
    publication_stand_commit(stand, publication_stand_publish(stand), 1, 0);
}

static void readers_with_certificates_fetch_from_each_other(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_reader *readers[2];
    struct muster_reader_stats stats;

    version_publish(stand, "{\"name\":\"p\",\"allow_rules\":[{\"name\":\"r\",\"source\":{"
                           "\"principals\":[\"" READER "\"]},\"request\":{\"paths\":["
                           "\"/muster.params.v1.Publication/Read\"]}}]}");
    for (int i = 0; i < 2; i++) {
        readers[i] = publication_stand_read(stand, 0);
        publication_stand_await(stand, readers[i], 1);
        publication_stand_check(readers[i], 1, 1);
    }

    muster_reader_stats(readers[0], &stats);
    assert_true(stats.bytes_sent > 0);
}

static bool is_denied(void *data)
{
    return muster_reader_error(data)->rc == MUSTER_PERMISSION_DENIED;
}

static void reader_that_no_rule_allows_is_named(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_reader *reader;

    version_publish(stand, "{\"name\":\"p\",\"allow_rules\":[{\"name\":\"t\",\"source\":{"
                           "\"principals\":[\"" TRAINER "\"]}}]}");
    reader = publication_stand_read(stand, 0);
    test_env_run_until(stand->env, is_denied, reader);

    assert_non_null(strstr(muster_reader_error(reader)->text,
                           READER " may not call /muster.params.v1.Publication/Read"));
    assert_null(muster_reader_current(reader));
}

static bool has_failed(void *data)
{
    return muster_reader_error(data)->rc != MUSTER_OK;
}

static void reader_in_plain_text_gets_nothing(void **state)
{
    struct publication_stand *stand = *state;
    struct muster_reader *reader;
    struct muster_env plain;

    version_publish(stand, NULL);
    plain = *stand->env;
    plain.tls = NULL;
    stand->reader_env = &plain;
    reader = publication_stand_read(stand, 0);
    test_env_run_until(stand->env, has_failed, reader);

    assert_int_equal(muster_reader_newest(reader), 1);
    assert_null(muster_reader_current(reader));
    publication_stand_leave(stand, reader);
}

static int certs_init(void **state)
{
    const struct fake_cert_options trainer = {.name = "trainer",
                                              .alt_names = "IP:127.0.0.1,URI:" TRAINER},
                                   reader = {.name = "reader",
                                             .alt_names = "IP:127.0.0.1,URI:" READER};

    (void)state;
    return fake_certs_init(&authority, &trainer_cert, &trainer, &reader_cert, &reader) ? 0 : -1;
}

static int certs_fini(void **state)
{
    (void)state;
    fake_certs_fini(authority, &trainer_cert, &reader_cert);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(readers_with_certificates_fetch_from_each_other),
        CASE(reader_that_no_rule_allows_is_named),
        CASE(reader_in_plain_text_gets_nothing),
    };

    return cmocka_run_group_tests(tests, certs_init, certs_fini);
}
