/* Credentials: what can be loaded, what is said of the rest, and reload. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/assertion_count.h"
#include "tests/lib/fake_authority.h"
#include "tests/lib/tls_pair.h"
#include "tests/lib/torture.h"
#include "tests/lib/virtual_loop.h"

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
        {"a certificate's file and text",
         {.cert_file = "/nowhere", .cert_pem = ours.cert_pem, .key_pem = ours.key_pem},
         MUSTER_INVALID_ARGUMENT,
         "not as both"},
        {"a key's file and text",
         {.cert_pem = ours.cert_pem, .key_file = "/nowhere", .key_pem = ours.key_pem},
         MUSTER_INVALID_ARGUMENT,
         "not as both"},
        {"a root's file and text",
         {.ca_file = "/nowhere", .ca_pem = ours.cert_pem},
         MUSTER_INVALID_ARGUMENT,
         "not as both"},
        {"a file that is not there",
         {.ca_file = "/nowhere/ca.pem"},
         MUSTER_NOT_FOUND,
         "/nowhere/ca.pem cannot be read"},
        {"text instead of a certificate",
         {.cert_pem = "hello", .key_pem = ours.key_pem},
         MUSTER_INVALID_ARGUMENT,
         "cert_pem: holds no certificate"},
        {"text instead of a key",
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
        assert_non_null(strstr(error.text, "not a regular file"));
        test_env_close(&test);
    }
    unlink(pipe);
    rmdir(folder);
}

/* The log's events, each with a blank behind it, and the last number and text of them. */
struct ledger {
    struct muster_log log;
    char events[256];
    uint64_t number;
    char text[MUSTER_ERROR_TEXT_BYTES];
};

static void on_log(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                   const char *event, const struct muster_field *fields, size_t count)
{
    struct ledger *ledger = MUSTER_CONTAINER_OF(log, struct ledger, log);
    size_t used = strlen(ledger->events);

    (void)wall_ns;
    (void)snprintf(ledger->events + used, sizeof(ledger->events) - used, "%d:%s ", (int)level,
                   event);
    for (size_t i = 0; i < count; i++) {
        if (fields[i].kind == MUSTER_FIELD_U64)
            ledger->number = fields[i].u64;
        if (strcmp(fields[i].name, "reason") == 0)
            (void)snprintf(ledger->text, sizeof(ledger->text), "%s", fields[i].text);
    }
}

static const struct muster_log_ops log_ops = {.write = on_log};

static void check_events(struct ledger *ledger, const char *expected)
{
    assert_string_equal(ledger->events, expected);
    ledger->events[0] = '\0';
}

/* A host whose clock a case sets. */
struct clock {
    struct muster_host host;
    uint64_t wall_s;
};

static uint64_t clock_wall_ns(struct muster_host *host)
{
    return MUSTER_CONTAINER_OF(host, struct clock, host)->wall_s * MUSTER_NS_PER_S;
}

static const struct muster_host_ops clock_ops = {.wall_ns = clock_wall_ns};

/* RFC 5280 4.1.2.5: the last second is part of its life. */
static void the_log_says_for_how_long_a_certificate_has_been_over(void **state)
{
    static const struct {
        int64_t after_s; /* its last second */
        const char *events;
        uint64_t number;
    } rows[] = {{-1, "", 0},
                {0, "", 0},
                {1, "1:tls_certificate_expired ", 1},
                {DAY_S, "1:tls_certificate_expired ", DAY_S}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ledger ledger = {.log = {.ops = &log_ops, .level_max = MUSTER_LOG_WARN}};
        struct clock clock = {.host.ops = &clock_ops, .wall_s = 1};
        struct test_env test;
        struct muster_host *host;
        const struct muster_tls_options options = {.cert_pem = ours.cert_pem,
                                                   .key_pem = ours.key_pem};
        struct muster_tls *tls = NULL;

        test_env_open(&test);
        host = test.env.host;
        test.env.host = &clock.host;
        test.env.log = &ledger.log;
        assert_int_equal(muster_tls_open(&test.env, &options, &tls, NULL), MUSTER_OK);
        check_events(&ledger, "");
        clock.wall_s = (uint64_t)((int64_t)muster_tls_expires_s(tls) + rows[i].after_s);
        muster_tls_close(tls);
        assert_int_equal(muster_tls_open(&test.env, &options, &tls, NULL), MUSTER_OK);

        check_events(&ledger, rows[i].events);
        assert_int_equal(ledger.number, rows[i].number);
        muster_tls_close(tls);
        test.env.host = host;
        test_env_close(&test);
    }
}

/* A server under attack says so once in a second; whoever gave up itself is not told of. */
static void refusals_are_told_once_in_a_second(void **state)
{
    static const struct {
        uint64_t after_ns; /* the row before */
        enum muster_rc rc;
        const char *events;
    } rows[] = {
        {0, MUSTER_UNAUTHENTICATED, "1:tls_peer_refused "},
        {0, MUSTER_UNAUTHENTICATED, "3:tls_handshake_failed "},
        {MUSTER_NS_PER_S - 1, MUSTER_UNAUTHENTICATED, "3:tls_handshake_failed "},
        {1, MUSTER_UNAUTHENTICATED, "1:tls_peer_refused "},
        {MUSTER_NS_PER_S - 1, MUSTER_UNAUTHENTICATED, "3:tls_handshake_failed "},
        {9 * MUSTER_NS_PER_S, MUSTER_UNAVAILABLE, "3:tls_handshake_failed "},
        {0, MUSTER_CANCELLED, ""},
        {0, MUSTER_UNAUTHENTICATED, "1:tls_peer_refused "},
    };
    struct ledger ledger = {.log = {.ops = &log_ops, .level_max = MUSTER_LOG_DEBUG}};
    struct virtual_loop loop;
    struct muster_loop *real;
    struct test_env test;
    struct muster_tls *tls = NULL;
    struct muster_address peer;

    (void)state;
    test_env_open(&test);
    virtual_loop_init(&loop);
    real = test.env.loop;
    test.env.loop = &loop.loop;
    test.env.log = &ledger.log;
    assert_int_equal(muster_address_parse("10.0.0.1:5", &peer, NULL), MUSTER_OK);
    assert_int_equal(muster_tls_open(&test.env, NULL, &tls, NULL), MUSTER_OK);
    loop.now_ns = 5; /* no second has passed on this clock: the first is told all the same */
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error = {.rc = rows[i].rc, .text = "why"};

        virtual_loop_advance(&loop, rows[i].after_ns);
        muster_tls_log_refusal(tls, &peer, &error);
        check_events(&ledger, rows[i].events);
        assert_string_equal(ledger.text, "why");
    }
    muster_tls_close(tls);
    test.env.loop = real;
    test_env_close(&test);
}

static void a_credential_lives_as_long_as_somebody_has_it(void **state)
{
    struct test_env test;
    struct muster_tls *tls = NULL;

    (void)state;
    test_env_open(&test);
    assert_int_equal(muster_tls_open(&test.env, NULL, &tls, NULL), MUSTER_OK);
    assert_false(muster_tls_is_shared(tls));
    assert_ptr_equal(muster_tls_share(tls), tls);
    assert_true(muster_tls_is_shared(tls));
    muster_tls_close(tls);

    assert_false(muster_tls_is_shared(tls));
    muster_tls_close(tls);
    muster_tls_close(NULL);
    test_env_close(&test);
}

static void run_open(struct torture *torture, const void *data)
{
    static const char *const names[] = {"spiffe://a/*", "b"};
    const struct muster_tls_options options = {.cert_pem = ours.cert_pem,
                                               .key_pem = ours.key_pem,
                                               .ca_pem = fake_authority_pem(authority),
                                               .peer_names = names,
                                               .peer_name_count = 2};
    struct muster_error error = {.rc = MUSTER_OK};
    struct muster_tls *tls = NULL;
    struct test_env test;
    enum muster_rc rc;

    (void)data;
    test_env_open(&test);
    torture_arm_limited(torture, &test.mem);
    rc = muster_tls_open(&test.env, &options, &tls, &error);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    assert_int_equal(error.rc, rc);
    muster_tls_close(tls);
    test_env_close(&test);
}

static void whatever_allocation_fails_nothing_is_lost(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "open", .run = run_open});
}

/* Files. */

struct shelf {
    struct tls_pair pair;
    char folder[64], cert[96], key[96];
    struct muster_tls *server, *client;
};

static void put_file(const char *path, const char *text)
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
    put_file(shelf->cert, cert.cert_pem);
    put_file(shelf->key, cert.key_pem);
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

/* The subject of the server that the client meets now. */
static const char *shelf_meet(struct shelf *shelf)
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
    assert_string_equal(shelf_meet(&shelf), "CN=one");
    put_cert(&shelf, &(struct fake_cert_options){.name = "two", .alt_names = "DNS:localhost"});
    assert_int_equal(muster_tls_reload(shelf.server, NULL), MUSTER_OK);
    say_hello(&shelf.pair); /* the open connection lives on */
    tls_pair_again(&shelf.pair);

    assert_string_equal(shelf_meet(&shelf), "CN=two");
    shelf_close(&shelf);
}

static void only_new_files_are_a_new_credential(void **state)
{
    struct ledger ledger = {.log = {.ops = &log_ops, .level_max = MUSTER_LOG_INFO}};
    struct shelf shelf;

    (void)state;
    shelf_open(&shelf, UINT64_MAX);
    shelf.pair.test.env.log = &ledger.log;
    assert_int_equal(muster_tls_reload(shelf.server, NULL), MUSTER_OK);
    check_events(&ledger, "");
    put_cert(&shelf, &(struct fake_cert_options){.name = "two", .alt_names = "DNS:localhost"});
    assert_int_equal(muster_tls_reload(shelf.server, NULL), MUSTER_OK);
    check_events(&ledger, "2:tls_reloaded ");
    assert_in_range(ledger.number, 30 * DAY_S - 60, 30 * DAY_S); /* that are left */
    assert_int_equal(muster_tls_reload(shelf.server, NULL), MUSTER_OK);
    check_events(&ledger, "");
    put_file(shelf.key, others.key_pem);
    assert_int_equal(muster_tls_reload(shelf.server, NULL), MUSTER_INVALID_ARGUMENT);

    check_events(&ledger, "1:tls_reload_failed ");
    assert_non_null(strstr(ledger.text, "does not belong to the certificate"));
    shelf.pair.test.env.log = NULL;
    shelf_close(&shelf);
}

static void one_that_is_over_replaces_one_that_is_over(void **state)
{
    struct shelf shelf;

    (void)state;
    shelf_open(&shelf, UINT64_MAX);
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "two" : "three";
        struct clock clock = {.host.ops = &clock_ops,
                              .wall_s = muster_tls_expires_s(shelf.server) + DAY_S};
        struct muster_host *host = shelf.pair.test.env.host;

        put_cert(&shelf, &(struct fake_cert_options){
                             .name = name, .from_s = -DAY_S, .until_s = (7 + i) * DAY_S});
        shelf.pair.test.env.host = &clock.host;
        assert_int_equal(muster_tls_reload(shelf.server, NULL), MUSTER_OK);
        shelf.pair.test.env.host = host;
    }
    assert_in_range(muster_tls_expires_s(shelf.server) * MUSTER_NS_PER_S -
                        muster_host_wall_ns(shelf.pair.test.env.host),
                    (8 * DAY_S - 60) * MUSTER_NS_PER_S, 8 * DAY_S * MUSTER_NS_PER_S);
    shelf_close(&shelf);
}

static void files_are_looked_at_when_it_is_time(void **state)
{
    static const struct {
        const char *name;
        uint64_t interval_ns, due_ns; /* due 0: never */
        bool has_files;
    } rows[] = {
        {"what was asked for", 5 * MUSTER_NS_PER_S, 5 * MUSTER_NS_PER_S, true},
        {"nothing was asked for", 0, 60 * MUSTER_NS_PER_S, true},
        {"never", UINT64_MAX, 0, true},
        {"texts", 5 * MUSTER_NS_PER_S, 0, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tls_options options = {.cert_pem = ours.cert_pem,
                                             .key_pem = ours.key_pem,
                                             .reload_interval_ns = rows[i].interval_ns};
        struct shelf shelf;
        struct virtual_loop loop;
        struct muster_env *env = &shelf.pair.test.env;
        struct muster_loop *real;
        struct muster_tls *tls = NULL;

        shelf_open(&shelf, UINT64_MAX);
        if (rows[i].has_files) {
            options.cert_file = shelf.cert;
            options.key_file = shelf.key;
            options.cert_pem = options.key_pem = NULL;
        }
        virtual_loop_init(&loop);
        real = env->loop;
        env->loop = &loop.loop;
        assert_int_equal(muster_tls_open(env, &options, &tls, NULL), MUSTER_OK);
        for (int turn = 1; turn <= 2; turn++) { /* again and again */
            uint64_t expires_s = muster_tls_expires_s(tls);

            put_cert(&shelf, &(struct fake_cert_options){
                                 .name = "new", .from_s = -DAY_S, .until_s = (40 + turn) * DAY_S});
            virtual_loop_advance(&loop, rows[i].due_ns != 0 ? rows[i].due_ns - 1 : DAY_S);
            fail_if(muster_tls_expires_s(tls) != expires_s, "%s: too early", rows[i].name);
            virtual_loop_advance(&loop, 1);
            fail_if((muster_tls_expires_s(tls) > expires_s) != (rows[i].due_ns != 0),
                    "%s: not at its time", rows[i].name);
        }
        muster_tls_close(tls);
        env->loop = real;
        shelf_close(&shelf);
    }
}

static void any_file_is_looked_at_again(void **state)
{
    struct shelf shelf;

    (void)state;
    shelf_open(&shelf, UINT64_MAX);
    put_file(shelf.cert, ours.cert_pem);
    put_file(shelf.key, ours.key_pem);
    for (int i = 0; i < 4; i++) {
        const struct muster_tls_options options = {
            .cert_file = i == 0 ? shelf.cert : NULL,
            .cert_pem = i == 0 ? NULL : ours.cert_pem,
            .key_file = i == 1 ? shelf.key : NULL,
            .key_pem = i == 1 ? NULL : ours.key_pem,
            .ca_file = i == 2 ? shelf.cert : NULL,
        };
        struct muster_tls *tls = NULL;

        assert_int_equal(muster_tls_open(&shelf.pair.test.env, &options, &tls, NULL), MUSTER_OK);
        assert_true(muster_timer_is_started(&tls->reload_timer) == (i < 3));
        muster_tls_close(tls);
    }
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
    put_file(shelf.key, others.key_pem);
    assert_int_equal(muster_tls_reload(shelf.server, &error), MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "does not belong"));
    put_cert(&shelf, &(struct fake_cert_options){.name = "old", .from_s = -9, .until_s = -3});
    assert_int_equal(muster_tls_reload(shelf.server, &error), MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "has expired; the former is kept"));
    unlink(shelf.cert);
    assert_int_equal(muster_tls_reload(shelf.server, &error), MUSTER_NOT_FOUND);

    assert_string_equal(shelf_meet(&shelf), "CN=one");
    shelf_close(&shelf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_credentials_are_named),
        cmocka_unit_test(a_pipe_is_no_credential),
        cmocka_unit_test(the_log_says_for_how_long_a_certificate_has_been_over),
        cmocka_unit_test(refusals_are_told_once_in_a_second),
        cmocka_unit_test(a_credential_lives_as_long_as_somebody_has_it),
        cmocka_unit_test(whatever_allocation_fails_nothing_is_lost),
        cmocka_unit_test(a_new_certificate_serves_new_connections),
        cmocka_unit_test(only_new_files_are_a_new_credential),
        cmocka_unit_test(one_that_is_over_replaces_one_that_is_over),
        cmocka_unit_test(files_are_looked_at_when_it_is_time),
        cmocka_unit_test(any_file_is_looked_at_again),
        cmocka_unit_test(files_are_looked_at_from_time_to_time),
        cmocka_unit_test(what_cannot_be_used_is_not),
    };
    const struct fake_cert_options options = {.name = "ours", .alt_names = "DNS:localhost"};
    int failed_count;

    if (!fake_certs_init(&authority, &ours, &options, &others, &options))
        return 1;
    failed_count = cmocka_run_group_tests_name("tls", tests, NULL, NULL);
    fake_certs_fini(authority, &ours, &others);
    return failed_count;
}
