/* Publishers and readers under TLS: who they are is told by certificates, and a policy says who may read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_authority.h"
#include "publication_stand.h"

#include <string.h>

#include <muster/tls.h>

#define PATIENCE_NS (30 * MUSTER_NS_PER_S)
#define TRAINER     "spiffe://test/job/7/task/trainer"
#define READER      "spiffe://test/job/7/task/reader"

static struct fake_authority *authority;
static struct fake_cert trainer_cert, reader_cert;

static struct muster_tls *tls_of(struct muster_env *env, const struct fake_cert *cert)
{
    static const char *const anybody[] = {"*"};
    const struct muster_tls_options options = {.cert_pem = cert->cert_pem,
                                               .key_pem = cert->key_pem,
                                               .ca_pem = fake_authority_pem(authority),
                                               .is_peer_required = true,
                                               .peer_names = anybody,
                                               .peer_name_count = 1};
    struct muster_tls *tls = NULL;
    struct muster_error error;

    if (muster_tls_open(env, &options, &tls, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return tls;
}

/* A publication under TLS with a version, and the environment of its readers. */
struct scene {
    struct publication_stand stand;
    struct muster_env reader_env;
    struct muster_authorization *authorization;
    struct muster_publication *publication;
};

static void scene_open(struct scene *scene, const char *policy)
{
    struct muster_error error;

    scene->authorization = NULL;
    publication_stand_open(&scene->stand);
    scene->stand.env->tls = tls_of(scene->stand.env, &trainer_cert);
    scene->reader_env = *scene->stand.env;
    scene->reader_env.tls = tls_of(&scene->reader_env, &reader_cert);
    scene->stand.reader_env = &scene->reader_env;
    if (policy != NULL && muster_authorization_parse(scene->stand.env, policy,
                                                     &scene->authorization, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    scene->stand.authorization = scene->authorization;
    scene->publication = publication_stand_publish(&scene->stand);
    assert_int_equal(
        publication_stand_put(&scene->stand, scene->publication, 1, 0, PATIENCE_NS, NULL),
        MUSTER_OK);
}

static void scene_close(struct scene *scene)
{
    publication_stand_end(&scene->stand, scene->publication);
    test_env_turn(scene->stand.env, 8);
    muster_authorization_free(scene->authorization);
    muster_tls_close(scene->reader_env.tls);
    muster_tls_close(scene->stand.env->tls);
    scene->stand.env->tls = NULL;
    publication_stand_close(&scene->stand);
}

static void readers_with_certificates_fetch_from_each_other(void **state)
{
    struct scene scene;
    struct muster_reader *readers[2];
    struct muster_reader_stats stats;

    (void)state;
    scene_open(&scene, "{\"name\":\"p\",\"allow_rules\":[{\"name\":\"r\",\"source\":{"
                       "\"principals\":[\"" READER "\"]},\"request\":{\"paths\":["
                       "\"/muster.params.v1.Publication/Read\"]}}]}");
    for (int i = 0; i < 2; i++) {
        readers[i] = publication_stand_read(&scene.stand, 0);
        publication_stand_await(&scene.stand, readers[i], 1);
        publication_stand_check(readers[i], 1, 1);
    }

    muster_reader_stats(readers[0], &stats);
    assert_true(stats.bytes_sent > 0);
    for (int i = 0; i < 2; i++)
        publication_stand_leave(&scene.stand, readers[i]);
    scene_close(&scene);
}

static bool is_denied(void *data)
{
    return muster_reader_error(data)->rc == MUSTER_PERMISSION_DENIED;
}

static void reader_that_no_rule_allows_is_named(void **state)
{
    struct scene scene;
    struct muster_reader *reader;

    (void)state;
    scene_open(&scene, "{\"name\":\"p\",\"allow_rules\":[{\"name\":\"t\",\"source\":{"
                       "\"principals\":[\"" TRAINER "\"]}}]}");
    reader = publication_stand_read(&scene.stand, 0);
    test_env_run_until(scene.stand.env, is_denied, reader);

    assert_non_null(strstr(muster_reader_error(reader)->text,
                           READER " may not call /muster.params.v1.Publication/Read"));
    assert_null(muster_reader_current(reader));
    publication_stand_leave(&scene.stand, reader);
    scene_close(&scene);
}

static bool has_failed(void *data)
{
    return muster_reader_error(data)->rc != MUSTER_OK;
}

static void reader_in_plain_text_gets_nothing(void **state)
{
    struct scene scene;
    struct muster_reader *reader;
    struct muster_env plain;

    (void)state;
    scene_open(&scene, NULL);
    plain = *scene.stand.env;
    plain.tls = NULL;
    scene.stand.reader_env = &plain;
    reader = publication_stand_read(&scene.stand, 0);
    test_env_run_until(scene.stand.env, has_failed, reader);

    assert_int_equal(muster_reader_newest(reader), 1);
    assert_null(muster_reader_current(reader));
    publication_stand_leave(&scene.stand, reader);
    scene_close(&scene);
}

static int certs_init(void **state)
{
    const struct fake_cert_options trainer = {.name = "trainer",
                                              .alt_names = "IP:127.0.0.1,URI:" TRAINER},
                                   reader = {.name = "reader",
                                             .alt_names = "IP:127.0.0.1,URI:" READER};

    (void)state;
    authority = fake_authority_new("job");
    return authority != NULL && fake_cert_init(&trainer_cert, authority, &trainer) &&
                   fake_cert_init(&reader_cert, authority, &reader)
               ? 0
               : -1;
}

static int certs_fini(void **state)
{
    (void)state;
    fake_cert_fini(&trainer_cert);
    fake_cert_fini(&reader_cert);
    fake_authority_free(authority);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_with_certificates_fetch_from_each_other),
        cmocka_unit_test(reader_that_no_rule_allows_is_named),
        cmocka_unit_test(reader_in_plain_text_gets_nothing),
    };

    return cmocka_run_group_tests(tests, certs_init, certs_fini);
}
