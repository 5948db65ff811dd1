/* Credentials: what can be loaded, what is said of the rest, and reload. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/assertion_count.h"
#include "tests/lib/fake_authority.h"
#include "tests/lib/tls_pair.h"

#define DAY_S (24L * 3600)

static struct fake_authority *authority;
static struct fake_cert ours, others;

static void bad_credentials_are_named(void **state)
{
    const struct {
        const char *name;
        struct muster_tls_options options;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"a certificate alone",
         {.cert_pem = ours.cert_pem},
         MUSTER_INVALID_ARGUMENT,
         "set key_file"},
        {"a key alone", {.key_pem = ours.key_pem}, MUSTER_INVALID_ARGUMENT, "set cert_file"},
        {"a file and a text",
         {.ca_file = "/nowhere", .ca_pem = ours.cert_pem},
         MUSTER_INVALID_ARGUMENT,
         "not as both"},
        {"a file that is not there",
         {.ca_file = "/nowhere/ca.pem"},
         MUSTER_NOT_FOUND,
         "/nowhere/ca.pem cannot be read"},
        {"text that is no certificate",
         {.cert_pem = "hello", .key_pem = ours.key_pem},
         MUSTER_INVALID_ARGUMENT,
         "cert_pem: holds no certificate"},
        {"text that is no key",
         {.cert_pem = ours.cert_pem, .key_pem = ours.cert_pem},
         MUSTER_INVALID_ARGUMENT,
         "key_pem: holds no private key"},
        {"another's key",
         {.cert_pem = ours.cert_pem, .key_pem = others.key_pem},
         MUSTER_INVALID_ARGUMENT,
         "key_pem does not belong to the certificate in cert_pem"},
        {"roots that are none", {.ca_pem = "x"}, MUSTER_INVALID_ARGUMENT, "ca_pem: holds no"},
        {"clients under no root",
         {.cert_pem = ours.cert_pem, .key_pem = ours.key_pem, .is_peer_required = true},
         MUSTER_INVALID_ARGUMENT,
         "set ca_file"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct test_env test;
        struct muster_tls *tls = NULL;
        struct muster_error error = {.rc = MUSTER_OK};

        test_env_open(&test);
        fail_if(muster_tls_open(&test.env, &rows[i].options, &tls, &error) != rows[i].rc ||
                    strstr(error.text, rows[i].text) == NULL,
                "%s: %s", rows[i].name, error.text);
        test_env_close(&test);
    }
}

/* Opening it would wait for a writer. */
static void a_pipe_is_no_credential(void **state)
{
    char folder[] = "/tmp/muster-tls-XXXXXX", pipe[64];
    const struct muster_tls_options rows[] = {
        {.cert_file = pipe, .key_pem = ours.key_pem},
        {.cert_pem = ours.cert_pem, .key_file = pipe},
        {.ca_file = pipe},
    };

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(pipe, sizeof(pipe), "%s/pipe", folder);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct test_env test;
        struct muster_tls *tls = NULL;
        struct muster_error error;

        test_env_open(&test);
        assert_int_equal(muster_tls_open(&test.env, &rows[i], &tls, &error),
                         MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, pipe));
        assert_non_null(strstr(error.text, "no regular file"));
        test_env_close(&test);
    }
    unlink(pipe);
    rmdir(folder);
}

struct ledger {
    struct muster_log log;
    unsigned count;
    uint64_t expired_s;
};

static void on_log(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                   const char *event, const struct muster_field *fields, size_t count)
{
    struct ledger *ledger = MUSTER_CONTAINER_OF(log, struct ledger, log);

    (void)level, (void)wall_ns;
    if (strcmp(event, "tls_certificate_expired") != 0)
        return;
    ledger->count++;
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, "expired_s") == 0)
            ledger->expired_s = fields[i].u64;
}

static void the_log_says_for_how_long_a_certificate_has_been_over(void **state)
{
    static const struct muster_log_ops ops = {.write = on_log};
    const struct fake_cert_options options = {
        .name = "old", .from_s = -2 * DAY_S, .until_s = -DAY_S};
    struct ledger ledger = {.log = {.ops = &ops, .level_max = MUSTER_LOG_WARN}};
    struct test_env test;
    struct muster_tls *tls = NULL;
    struct fake_cert old;

    (void)state;
    test_env_open(&test);
    assert_true(fake_cert_init(&old, authority, &options));
    test.env.log = &ledger.log;
    assert_int_equal(muster_tls_open(&test.env,
                                     &(struct muster_tls_options){.cert_pem = old.cert_pem,
                                                                  .key_pem = old.key_pem},
                                     &tls, NULL),
                     MUSTER_OK);

    assert_int_equal(ledger.count, 1);
    assert_in_range(ledger.expired_s, DAY_S, 2 * DAY_S);
    test.env.log = NULL;
    muster_tls_close(tls);
    fake_cert_fini(&old);
    test_env_close(&test);
}

static void whatever_allocation_fails_nothing_is_lost(void **state)
{
    static const char *const names[] = {"spiffe://a/*", "b"};
    const struct muster_tls_options options = {.cert_pem = ours.cert_pem,
                                               .key_pem = ours.key_pem,
                                               .ca_pem = fake_authority_pem(authority),
                                               .peer_names = names,
                                               .peer_name_count = 2};
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;
    uint64_t fail_at;

    (void)state;
    for (fail_at = 1; rc != MUSTER_OK && fail_at < 100; fail_at++) {
        struct test_env test;
        struct muster_tls *tls = NULL;

        test_env_open(&test);
        test.mem.fail_at = fail_at;
        rc = muster_tls_open(&test.env, &options, &tls, NULL);
        assert_true(rc == MUSTER_OK || rc == MUSTER_RESOURCE_EXHAUSTED);
        test.mem.fail_at = 0;
        muster_tls_close(tls);
        test_env_close(&test);
    }
    assert_true(rc == MUSTER_OK && fail_at > 8);
}

/* Files. */

struct shelf {
    struct tls_pair pair;
    char folder[64], cert[96], key[96];
    struct muster_tls *server, *client;
};

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void put_cert(struct shelf *shelf, const struct fake_cert_options *options)
{
    struct fake_cert cert;

    assert_true(fake_cert_init(&cert, authority, options));
    put(shelf->cert, cert.cert_pem);
    put(shelf->key, cert.key_pem);
    fake_cert_fini(&cert);
}

static void shelf_open(struct shelf *shelf, uint64_t reload_interval_ns)
{
    strcpy(shelf->folder, "/tmp/muster-tls-XXXXXX");
    assert_non_null(mkdtemp(shelf->folder));
    snprintf(shelf->cert, sizeof(shelf->cert), "%s/cert.pem", shelf->folder);
    snprintf(shelf->key, sizeof(shelf->key), "%s/key.pem", shelf->folder);
    put_cert(shelf, &(struct fake_cert_options){.name = "one", .alt_names = "DNS:localhost"});
    tls_pair_open(&shelf->pair);
    assert_int_equal(
        muster_tls_open(&shelf->pair.test.env,
                        &(struct muster_tls_options){.cert_file = shelf->cert,
                                                     .key_file = shelf->key,
                                                     .reload_interval_ns = reload_interval_ns},
                        &shelf->server, NULL),
        MUSTER_OK);
    assert_int_equal(
        muster_tls_open(&shelf->pair.test.env,
                        &(struct muster_tls_options){.ca_pem = fake_authority_pem(authority)},
                        &shelf->client, NULL),
        MUSTER_OK);
}

static void shelf_close(struct shelf *shelf)
{
    muster_tls_close(shelf->server);
    muster_tls_close(shelf->client);
    tls_pair_close(&shelf->pair);
    unlink(shelf->cert);
    unlink(shelf->key);
    rmdir(shelf->folder);
}

/* Whom the client meets now. */
static const char *meet(struct shelf *shelf)
{
    tls_pair_shake(&shelf->pair, shelf->client, shelf->server, "localhost", NULL);
    assert_int_equal(shelf->pair.client.rc, MUSTER_OK);
    return muster_tls_stream_identity(shelf->pair.client.stream)->subject;
}

static void on_write(struct muster_stream_write *write, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    *(bool *)write->data = true;
}

static void on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    *(bool *)read->data = true;
}

/* Five bytes from the server to the client. */
static void say_hello(struct tls_pair *pair)
{
    bool is_written = false, is_read = false;
    struct muster_stream_write write = {.data = &is_written};
    struct muster_stream_read read = {.data = &is_read};
    struct iovec iov = {.iov_base = (void *)(uintptr_t) "hello", .iov_len = 5};
    char text[5];

    assert_int_equal(muster_stream_submit(&write, pair->server.stream, &iov, 1, on_write),
                     MUSTER_OK);
    assert_int_equal(muster_stream_receive_into(&read, pair->client.stream, text, 5, 5, on_read),
                     MUSTER_OK);
    test_env_run_until(&pair->test.env, test_env_is_true, &is_written);
    test_env_run_until(&pair->test.env, test_env_is_true, &is_read);
    assert_memory_equal(text, "hello", 5);
}

static void a_new_certificate_serves_new_connections(void **state)
{
    struct shelf shelf;

    (void)state;
    shelf_open(&shelf, UINT64_MAX);
    assert_string_equal(meet(&shelf), "CN=one");
    put_cert(&shelf, &(struct fake_cert_options){.name = "two", .alt_names = "DNS:localhost"});
    assert_int_equal(muster_tls_reload(shelf.server, NULL), MUSTER_OK);
    say_hello(&shelf.pair); /* the open connection lives on */
    tls_pair_again(&shelf.pair);

    assert_string_equal(meet(&shelf), "CN=two");
    shelf_close(&shelf);
}

static bool has_changed(void *data)
{
    const struct muster_tls *tls = data;

    return muster_tls_expires_s(tls) > (uint64_t)4e9; /* beyond the month of the first */
}

static void files_are_looked_at_from_time_to_time(void **state)
{
    struct shelf shelf;

    (void)state;
    shelf_open(&shelf, MUSTER_NS_PER_MS);
    put_cert(&shelf, &(struct fake_cert_options){.name = "late", .is_timeless = true});
    test_env_run_until(&shelf.pair.test.env, has_changed, shelf.server);
    shelf_close(&shelf);
}

static void what_cannot_be_used_is_not(void **state)
{
    struct shelf shelf;
    struct muster_error error;

    (void)state;
    shelf_open(&shelf, UINT64_MAX);
    put(shelf.key, others.key_pem);
    assert_int_equal(muster_tls_reload(shelf.server, &error), MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "does not belong"));
    put_cert(&shelf, &(struct fake_cert_options){.name = "old", .from_s = -9, .until_s = -3});
    assert_int_equal(muster_tls_reload(shelf.server, &error), MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "has expired; the former is kept"));
    unlink(shelf.cert);
    assert_int_equal(muster_tls_reload(shelf.server, &error), MUSTER_NOT_FOUND);

    assert_string_equal(meet(&shelf), "CN=one");
    shelf_close(&shelf);
}

static void patterns_match_names(void **state)
{
    static const char *const dns[] = {"a.test", "b.test"};
    const struct muster_identity spiffe = {.spiffe_id = "spiffe://t/job/1/task/2",
                                           .dns_names = dns,
                                           .dns_name_count = 2,
                                           .subject = "CN=x"};
    const struct muster_identity host = {.dns_names = dns, .dns_name_count = 2, .subject = "CN=x"};
    const struct muster_identity bare = {.subject = "CN=x"};

    (void)state;
    assert_true(muster_identity_matches(&spiffe, "spiffe://t/job/1/*"));
    assert_true(muster_identity_matches(&spiffe, "*"));
    assert_true(muster_identity_matches(&spiffe, "*/task/2"));
    assert_false(muster_identity_matches(&spiffe, "spiffe://t/job/1"));
    assert_false(muster_identity_matches(&spiffe, "spiffe://t/job/1/task/22"));
    assert_false(muster_identity_matches(&spiffe, "a.test"));
    assert_true(muster_identity_matches(&host, "B.test"));
    assert_true(muster_identity_matches(&host, "*.test"));
    assert_false(muster_identity_matches(&host, "CN=x"));
    assert_true(muster_identity_matches(&bare, "CN=x"));
    assert_false(muster_identity_matches(&bare, ""));
    assert_false(muster_identity_matches(NULL, "*"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_credentials_are_named),
        cmocka_unit_test(a_pipe_is_no_credential),
        cmocka_unit_test(the_log_says_for_how_long_a_certificate_has_been_over),
        cmocka_unit_test(whatever_allocation_fails_nothing_is_lost),
        cmocka_unit_test(a_new_certificate_serves_new_connections),
        cmocka_unit_test(files_are_looked_at_from_time_to_time),
        cmocka_unit_test(what_cannot_be_used_is_not),
        cmocka_unit_test(patterns_match_names),
    };
    const struct fake_cert_options options = {.name = "ours", .alt_names = "DNS:localhost"};
    int failed_count;

    authority = fake_authority_new("authority");
    if (!fake_cert_init(&ours, authority, &options) ||
        !fake_cert_init(&others, authority, &options))
        return 1;
    failed_count = cmocka_run_group_tests_name("tls", tests, NULL, NULL);
    fake_cert_fini(&ours);
    fake_cert_fini(&others);
    fake_authority_free(authority);
    return failed_count;
}
