/* A registry that is played by hand: what the client asks again, and where a watch goes on. */
#include "played_registry.h"
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/etcd.pb-c.h"
#include "proto/guard.h"

#define LOG_MAX   200
#define CLUSTER   1u
#define LIVES_MAX 17

struct watch_row {
    const char *name;
    uint64_t start;
    /* The words of each stream (see say_word); "=" before it: so do all that follow. */
    const char *lives[LIVES_MAX];
    const char *starts, *shown;
    enum muster_rc end; /* OK: it goes on */
};

struct stand {
    struct played_registry played;
    /* operations */
    enum muster_rc refusal; /* of the first call */
    const char *refusal_text;
    unsigned calls;
    bool is_answered_twice; /* with the key "k", and with another revision the second time */
    struct muster_registry_op op;
    bool is_done;
    enum muster_rc rc;
    /* the watch */
    const struct watch_row *row;
    unsigned life;
    struct muster_registry_watch watch;
    char starts[LOG_MAX]; /* revisions that streams were to begin with */
    char shown[LOG_MAX];  /* revisions that were shown */
    bool has_ended, has_left; /* the watch; the client, from its stream */
    enum muster_rc end_rc;
};

/* --- The registry --- */

#define HEADER "\x0a\x04\x08\x01\x18"

/* Field 1 of every answer is its header: registry 1, revision 5. */
static void on_unary(struct muster_rpc *rpc, struct muster_bytes request)
{
    struct stand *stand = muster_rpc_service(rpc);

    (void)request;
    if (stand->calls++ == 0 && stand->refusal != MUSTER_OK) {
        muster_rpc_finish(rpc, stand->refusal, stand->refusal_text);
        return;
    }
    if (stand->is_answered_twice) {
        assert_int_equal(muster_rpc_send(rpc, HEADER "\x05\x12\x03\x0a\x01k", 11), MUSTER_OK);
        assert_int_equal(muster_rpc_send(rpc, HEADER "\x06\x12\x03\x0a\x01k", 11), MUSTER_OK);
    } else {
        assert_int_equal(muster_rpc_send(rpc, HEADER "\x05", 6), MUSTER_OK);
    }
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

/* Fields that no message has, two bytes each. */
static char many_values[(size_t)2 * ((1 << 20) + 1)];

struct notice {
    uint64_t cluster;
    long revision;
    bool is_created, is_canceled, is_fragment;
    const char *reason;
    long compact_revision;
    const long *events;
    size_t event_count;
};

static void send_notice(struct muster_rpc *rpc, const struct notice *notice)
{
    Etcdserverpb__WatchResponse response = ETCDSERVERPB__WATCH_RESPONSE__INIT;
    Etcdserverpb__ResponseHeader header = ETCDSERVERPB__RESPONSE_HEADER__INIT;
    Mvccpb__Event events[4], *pointers[4];
    Mvccpb__KeyValue kvs[4];

    header.cluster_id = notice->cluster;
    header.revision = notice->revision;
    response.header = &header;
    response.created = notice->is_created;
    response.canceled = notice->is_canceled;
    response.fragment = notice->is_fragment;
    response.compact_revision = notice->compact_revision;
    if (notice->reason != NULL)
        response.cancel_reason = (char *)(uintptr_t)notice->reason;
    for (size_t i = 0; i < notice->event_count; i++) {
        mvccpb__event__init(&events[i]);
        mvccpb__key_value__init(&kvs[i]);
        kvs[i].key = (ProtobufCBinaryData){1, (uint8_t *)(uintptr_t) "k"};
        kvs[i].mod_revision = notice->events[i];
        events[i].kv = &kvs[i];
        pointers[i] = &events[i];
    }
    response.n_events = notice->event_count;
    response.events = pointers;
    played_registry_send(rpc, &response);
}

/* One word: C10 is the answer to a new watch, at revision 10 (c10: of another registry); E12,13 shows
 * changes of these revisions, F12 is a part of such a message; P20 says that all up to 20 was shown; K9, D
 * and N cancel the watch for compaction, want of permission and another reason; G is no message, and L one
 * with more values than a client takes. */
static void say_word(struct muster_rpc *rpc, const char *word)
{
    long revisions[4] = {0};
    struct notice notice = {.cluster = *word == 'c' ? CLUSTER + 1 : CLUSTER, .events = revisions};
    const char *at = word + 1;
    size_t count = 0;

    for (char *end = NULL; count < 4 && *at >= '0' && *at <= '9'; at = end + (*end == ','))
        revisions[count++] = strtol(at, &end, 10);
    notice.revision = count > 0 ? revisions[count - 1] : 0;
    notice.is_created = *word == 'C' || *word == 'c';
    notice.is_canceled = strchr("KDN", *word) != NULL;
    notice.is_fragment = *word == 'F';
    notice.compact_revision = *word == 'K' ? revisions[0] : 0;
    if (*word == 'D')
        notice.reason = "etcdserver: permission denied";
    if (*word == 'N')
        notice.reason = "for no reason";
    notice.event_count = *word == 'E' || *word == 'F' ? count : 0;
    if (*word == 'G')
        assert_int_equal(muster_rpc_send(rpc, "\xff", 1), MUSTER_OK);
    else if (*word == 'L')
        assert_int_equal(muster_rpc_send(rpc, many_values, sizeof(many_values)), MUSTER_OK);
    else
        send_notice(rpc, &notice);
}

/* The words of one stream; then it ends UNAVAILABLE, or with the code behind "!"; "-" leaves it open. */
static void play_words(struct muster_rpc *rpc, const char *words)
{
    for (const char *at = words; at != NULL && *at != '\0'; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (*at == '-')
            return;
        if (*at == '!') {
            muster_rpc_finish(rpc, (enum muster_rc)atoi(at + 1), "so");
            return;
        }
        if (*at == '*') { /* more parts than a watch holds */
            for (unsigned i = 0; i < 65; i++) {
                char word[8];

                (void)snprintf(word, sizeof(word), "F%u", at[1] == '+' ? 15 + i / 2 : 15);
                say_word(rpc, word);
            }
            continue;
        }
        say_word(rpc, at);
    }
    muster_rpc_finish(rpc, MUSTER_UNAVAILABLE, "the connection is lost");
}

static void note_revision(char *log, long revision)
{
    size_t length = strlen(log);

    (void)snprintf(log + length, LOG_MAX - length, "%ld ", revision);
}

static void on_watch(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct stand *stand = muster_rpc_service(rpc);
    Etcdserverpb__WatchRequest *request = NULL;
    const char *words = NULL;

    assert_int_equal(muster_proto_unpack(stand->played.env->mem,
                                         &etcdserverpb__watch_request__descriptor, bytes.data,
                                         bytes.size, NULL, &request, NULL),
                     MUSTER_OK);
    note_revision(stand->starts, request->create_request->start_revision);
    muster_proto_free(request);
    assert_true(stand->life < LIVES_MAX && stand->row->lives[stand->life] != NULL);
    words = stand->row->lives[stand->life];
    stand->life += *words != '=';
    play_words(rpc, words + (*words == '='));
}

static void on_left(struct muster_rpc *rpc, enum muster_rc rc)
{
    (void)rc;
    ((struct stand *)muster_rpc_service(rpc))->has_left = true;
}

static const struct muster_rpc_method methods[] = {
    {.path = "/etcdserverpb.KV/Range", .on_message = on_unary, .is_unary = true},
    {.path = "/etcdserverpb.KV/Put", .on_message = on_unary, .is_unary = true},
    {.path = "/etcdserverpb.KV/DeleteRange", .on_message = on_unary, .is_unary = true},
    {.path = "/etcdserverpb.KV/Txn", .on_message = on_unary, .is_unary = true},
    {.path = "/etcdserverpb.KV/Compact", .on_message = on_unary, .is_unary = true},
    {.path = "/etcdserverpb.Lease/LeaseGrant", .on_message = on_unary, .is_unary = true},
    {.path = "/etcdserverpb.Lease/LeaseRevoke", .on_message = on_unary, .is_unary = true},
    {.path = "/etcdserverpb.Lease/LeaseTimeToLive", .on_message = on_unary, .is_unary = true},
    {.path = "/etcdserverpb.Watch/Watch", .on_message = on_watch, .on_end = on_left},
};

/* --- The stand --- */

static void stand_open(struct stand *stand)
{
    memset(stand, 0, sizeof(*stand));
    played_registry_open(&stand->played, methods, sizeof(methods) / sizeof(methods[0]), stand,
                         NULL);
    stand->op.data = stand->watch.data = stand;
}

static void stand_close(struct stand *stand)
{
    played_registry_close(&stand->played);
}

/* --- Operations --- */

static void on_op(struct muster_registry_op *op, enum muster_rc rc)
{
    struct stand *stand = op->data;

    stand->is_done = true;
    stand->rc = rc;
}

enum kind { RANGE, PUT, DELETE, TXN, COMPACT, GRANT, REVOKE, TIME_TO_LIVE };

static enum muster_rc start_op(struct stand *stand, enum kind kind)
{
    const struct muster_bytes key = {"k", 1};
    const struct muster_registry_range range = {.key = key};
    const uint64_t deadline_ns = played_registry_soon(&stand->played);
    struct muster_registry_op *op = &stand->op;

    switch (kind) {
    case RANGE:
        return muster_registry_range_start(op, stand->played.registry, &range, deadline_ns, on_op);
    case PUT:
        return muster_registry_put_start(op, stand->played.registry, key, key, 0, deadline_ns,
                                         on_op);
    case DELETE:
        return muster_registry_delete_start(op, stand->played.registry, key, MUSTER_REGISTRY_KEY,
                                            deadline_ns, on_op);
    case TXN:
        return muster_registry_swap_start(op, stand->played.registry, key, 3, key, 0, deadline_ns,
                                          on_op);
    case COMPACT:
        return muster_registry_compact_start(op, stand->played.registry, 3, deadline_ns, on_op);
    case GRANT:
        return muster_registry_grant_start(op, stand->played.registry, 9, 0, deadline_ns, on_op);
    case REVOKE:
        return muster_registry_revoke_start(op, stand->played.registry, 9, deadline_ns, on_op);
    default:
        return muster_registry_time_to_live_start(op, stand->played.registry, 9, deadline_ns,
                                                  on_op);
    }
}

static void what_may_have_changed_something_is_not_asked_twice(void **state)
{
    static const char lost[] = "the connection is lost", leaderless[] = "etcdserver: no leader";
    static const struct {
        enum kind kind;
        enum muster_rc refusal;
        const char *text;
        unsigned calls;
        enum muster_rc rc;
    } rows[] = {
        {RANGE, MUSTER_UNAVAILABLE, lost, 2, MUSTER_OK},
        {TIME_TO_LIVE, MUSTER_UNAVAILABLE, lost, 2, MUSTER_OK},
        {PUT, MUSTER_UNAVAILABLE, lost, 1, MUSTER_UNAVAILABLE},
        {DELETE, MUSTER_UNAVAILABLE, lost, 1, MUSTER_UNAVAILABLE},
        {TXN, MUSTER_UNAVAILABLE, lost, 1, MUSTER_UNAVAILABLE},
        {COMPACT, MUSTER_UNAVAILABLE, lost, 1, MUSTER_UNAVAILABLE},
        {GRANT, MUSTER_UNAVAILABLE, lost, 1, MUSTER_UNAVAILABLE},
        {REVOKE, MUSTER_UNAVAILABLE, lost, 1, MUSTER_UNAVAILABLE},
        {PUT, MUSTER_UNAVAILABLE, leaderless, 2, MUSTER_OK},
        {TXN, MUSTER_UNAVAILABLE, leaderless, 2, MUSTER_OK},
        {TXN, MUSTER_UNAVAILABLE, "etcdserver: no leader, perhaps", 1, MUSTER_UNAVAILABLE},
        {RANGE, MUSTER_INTERNAL, lost, 1, MUSTER_INTERNAL},
        {TXN, MUSTER_INTERNAL, leaderless, 1, MUSTER_INTERNAL},
        {RANGE, MUSTER_INVALID_ARGUMENT, "etcdserver: user name is empty", 1,
         MUSTER_UNAUTHENTICATED},
        {RANGE, MUSTER_INVALID_ARGUMENT, lost, 1, MUSTER_INVALID_ARGUMENT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stand stand;

        stand_open(&stand);
        stand.refusal = rows[i].refusal;
        stand.refusal_text = rows[i].text;
        assert_int_equal(start_op(&stand, rows[i].kind), MUSTER_OK);
        test_env_run_until(stand.played.env, test_env_is_true, &stand.is_done);

        if (stand.calls != rows[i].calls || stand.rc != rows[i].rc)
            fail_msg("row %zu: %u calls, %s", i, stand.calls, muster_rc_name(stand.rc));
        assert_false(stand.op.is_unsent);
        stand_close(&stand);
    }
}

/* The results of the first answer are held while the second comes. */
static void a_second_answer_to_an_operation_is_ignored(void **state)
{
    struct stand stand;

    (void)state;
    stand_open(&stand);
    stand.is_answered_twice = true;
    assert_int_equal(start_op(&stand, RANGE), MUSTER_OK);
    test_env_run_until(stand.played.env, test_env_is_true, &stand.is_done);

    assert_int_equal(stand.rc, MUSTER_OK);
    assert_int_equal(stand.op.revision, 5);
    stand_close(&stand);
}

static void operations_on_no_key_are_refused(void **state)
{
    const struct muster_bytes none = {NULL, 0};
    const struct muster_registry_range range = {.key = none};
    uint64_t soon_ns;
    struct stand stand;

    (void)state;
    stand_open(&stand);
    soon_ns = played_registry_soon(&stand.played);
    assert_int_equal(
        muster_registry_range_start(&stand.op, stand.played.registry, &range, soon_ns, on_op),
        MUSTER_INVALID_ARGUMENT);
    assert_int_equal(
        muster_registry_put_start(&stand.op, stand.played.registry, none, none, 0, soon_ns, on_op),
        MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_registry_delete_start(&stand.op, stand.played.registry, none,
                                                  MUSTER_REGISTRY_KEY, soon_ns, on_op),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_registry_delete_start(&stand.op, stand.played.registry, none,
                                                  MUSTER_REGISTRY_PREFIX, soon_ns, on_op),
                     MUSTER_OK); /* all keys */
    test_env_run_until(stand.played.env, test_env_is_true, &stand.is_done);
    assert_int_equal(stand.rc, MUSTER_OK);
    stand_close(&stand);
}

/* A call that has started ends. */
static void run_start(struct torture *torture, const void *data)
{
    struct stand stand;
    enum muster_rc rc;

    stand_open(&stand);
    torture_arm_limited(torture, &stand.played.test.mem);
    rc = start_op(&stand, *(const enum kind *)data);
    torture_disarm(torture);

    assert_true(rc == MUSTER_OK || (torture->refused > 0 && rc == MUSTER_RESOURCE_EXHAUSTED));
    if (rc == MUSTER_OK)
        test_env_run_until(stand.played.env, test_env_is_true, &stand.is_done);
    stand_close(&stand);
}

static void no_memory_to_start_is_told(void **state)
{
    (void)state;
    for (enum kind kind = RANGE; kind <= TIME_TO_LIVE; kind++) {
        char name[24];

        (void)snprintf(name, sizeof(name), "start %d", kind);
        torture_run(&(struct torture_scenario){.name = name, .run = run_start, .data = &kind});
    }
}

/* --- Watches --- */

static void on_changes(struct muster_registry_watch *watch,
                       const struct muster_registry_change *changes, size_t count)
{
    struct stand *stand = watch->data;

    assert_true(count > 0);
    for (size_t i = 0; i < count; i++)
        note_revision(stand->shown, (long)changes[i].kv.mod_revision);
}

static void on_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    struct stand *stand = watch->data;

    stand->has_ended = true;
    stand->end_rc = rc;
}

#define MANY                                                                                       \
    "15 15 16 16 17 17 18 18 19 19 20 20 21 21 22 22 23 23 24 24 "                                 \
    "25 25 26 26 27 27 28 28 29 29 30 30 31 31 32 32 33 33 34 34 "                                 \
    "35 35 36 36 37 37 38 38 39 39 40 40 41 41 42 42 43 43 44 44 "                                 \
    "45 45 46 46 "

#define SEVEN(life)    life, life, life, life, life, life, life
#define EIGHT(numbers) numbers numbers numbers numbers numbers numbers numbers numbers

static const struct watch_row watch_rows[] = {
    {"from now", 0, {"C10 E12", "C12 E13 -"}, "0 13 ", "12 13 ", MUSTER_OK},
    {"from a revision", 5, {"C10 E6,8", "C12 E9 -"}, "5 9 ", "6 8 9 ", MUSTER_OK},
    {"nothing shown", 0, {"C10", "C11 E12 -"}, "0 11 ", "12 ", MUSTER_OK},
    {"nothing said", 0, {"", "C11 E12 -"}, "0 0 ", "12 ", MUSTER_OK},
    {"progress", 0, {"C10 P20", "C20 E21 -"}, "0 21 ", "21 ", MUSTER_OK},
    {"progress of old", 0, {"C10 E12 P11", "C20 E21 -"}, "0 13 ", "12 21 ", MUSTER_OK},
    {"a part", 0, {"C10 F15", "C15 E15 -"}, "0 11 ", "15 ", MUSTER_OK},
    {"all parts", 0, {"C10 F15 E15", "C15 E16 -"}, "0 16 ", "15 15 16 ", MUSTER_OK},
    {"whole revisions", 0, {"C10 F14,15 F15,16", "C16 E16 -"}, "0 16 ", "14 15 15 16 ", MUSTER_OK},
    {"parts of nothing", 0, {"C10 F F12 F E12 E13 -"}, "0 ", "12 12 13 ", MUSTER_OK},
    {"a part, then all", 0, {"C10 F14", "C15 F14 E15 -"}, "0 11 ", "14 15 ", MUSTER_OK},
    {"parts of many revisions", 0, {"C10 *+ -"}, "0 ", MANY, MUSTER_OK},
    {"too many parts of one", 0, {"C10 F14 * -"}, "0 ", "14 ", MUSTER_RESOURCE_EXHAUSTED},
    {"what was shown", 0, {"C10 E12", "C13 E11,12,13 -"}, "0 13 ", "12 13 ", MUSTER_OK},
    {"no message", 0, {"C10 E12 G -", "C13 E13 -"}, "0 13 ", "12 13 ", MUSTER_OK},
    {"no message, again and again",
     0,
     {"C10 E12", "=C12 G -"},
     "0 " EIGHT("13 "),
     "12 ",
     MUSTER_INTERNAL},
    {"no message, seven times twice",
     0,
     {SEVEN("C10 G -"), "C10 E12", SEVEN("C12 G -"), "C12 E13 -"},
     "0 11 11 11 11 11 11 11 " EIGHT("13 "),
     "12 13 ",
     MUSTER_OK},
    {"too much, again and again",
     0,
     {"C10 E12", "=C12 L -"},
     "0 " EIGHT("13 "),
     "12 ",
     MUSTER_RESOURCE_EXHAUSTED},
    {"INTERNAL", 0, {"C10 E12 !13", "C13 E13 -"}, "0 13 ", "12 13 ", MUSTER_OK},
    {"twice", 0, {"C10 E12", "C12", "C12 E13 -"}, "0 13 13 ", "12 13 ", MUSTER_OK},
    {"another registry", 0, {"C10 E12", "c12 -"}, "0 13 ", "12 ", MUSTER_DATA_LOSS},
    {"lost revisions", 0, {"C10 E12", "C11 -"}, "0 13 ", "12 ", MUSTER_DATA_LOSS},
    {"lost revisions after progress", 0, {"C10 P12", "C11 -"}, "0 13 ", "", MUSTER_DATA_LOSS},
    {"another registry than before", 5, {"c10 -"}, "5 ", "", MUSTER_DATA_LOSS},
    {"another registry, from now", 0, {"c10 E12 -"}, "0 ", "12 ", MUSTER_OK},
    {"compacted", 5, {"C10 K9 -"}, "5 ", "", MUSTER_OUT_OF_RANGE},
    {"not permitted", 0, {"C10 D -"}, "0 ", "", MUSTER_PERMISSION_DENIED},
    {"canceled", 0, {"C10 N -"}, "0 ", "", MUSTER_FAILED_PRECONDITION},
    {"PERMISSION_DENIED", 0, {"!7"}, "0 ", "", MUSTER_PERMISSION_DENIED},
    {"UNIMPLEMENTED", 0, {"!12"}, "0 ", "", MUSTER_UNIMPLEMENTED},
    {"INVALID_ARGUMENT", 0, {"!3"}, "0 ", "", MUSTER_INVALID_ARGUMENT},
    {"UNAUTHENTICATED", 0, {"!16"}, "0 ", "", MUSTER_UNAUTHENTICATED},
};

/* The last revision of the last stream has been shown, or it is over. */
static bool is_settled(void *data)
{
    const struct stand *stand = data;
    const struct watch_row *row = stand->row;

    return stand->has_ended ||
           (row->end == MUSTER_OK && strlen(stand->shown) >= strlen(row->shown) &&
            strlen(stand->starts) >= strlen(row->starts));
}

static void a_watch_goes_on_where_it_broke(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(many_values); i += 2)
        many_values[i] = 0x78;
    for (size_t i = 0; i < sizeof(watch_rows) / sizeof(watch_rows[0]); i++) {
        const struct watch_row *row = &watch_rows[i];
        struct stand stand;

        stand_open(&stand);
        stand.row = row;
        assert_int_equal(start_op(&stand, RANGE), MUSTER_OK); /* tells which registry it is */
        test_env_run_until(stand.played.env, test_env_is_true, &stand.is_done);
        assert_int_equal(muster_registry_watch_start(
                             &stand.watch, stand.played.registry, (struct muster_bytes){"k", 1},
                             MUSTER_REGISTRY_KEY, row->start, on_changes, on_end),
                         MUSTER_OK);
        test_env_run_until(stand.played.env, is_settled, &stand);

        if (strcmp(stand.starts, row->starts) != 0 || strcmp(stand.shown, row->shown) != 0 ||
            (stand.has_ended ? stand.end_rc : MUSTER_OK) != row->end)
            fail_msg("%s: began at %s, showed %s, ended %s", row->name, stand.starts, stand.shown,
                     muster_rc_name(stand.has_ended ? stand.end_rc : MUSTER_OK));
        stand_close(&stand);
    }
}

static bool has_shown(void *data)
{
    return ((struct stand *)data)->shown[0] != '\0';
}

static void a_watch_that_is_stopped_ends_its_stream_at_the_registry(void **state)
{
    static const struct watch_row row = {.lives = {"C10 E12 -"}};
    struct stand stand;

    (void)state;
    stand_open(&stand);
    stand.row = &row;
    assert_int_equal(muster_registry_watch_start(&stand.watch, stand.played.registry,
                                                 (struct muster_bytes){"k", 1}, MUSTER_REGISTRY_KEY,
                                                 0, on_changes, on_end),
                     MUSTER_OK);
    test_env_run_until(stand.played.env, has_shown, &stand);
    assert_false(stand.has_left);
    muster_registry_watch_stop(&stand.watch);
    muster_registry_watch_stop(&stand.watch);
    test_env_run_until(stand.played.env, test_env_is_true, &stand.has_left);

    assert_false(stand.has_ended);
    stand_close(&stand);
}

static void a_watch_of_nothing_or_of_a_closed_registry_is_refused(void **state)
{
    const struct muster_bytes none = {NULL, 0}, key = {"k", 1};
    struct stand stand;

    (void)state;
    stand_open(&stand);
    assert_int_equal(muster_registry_watch_start(&stand.watch, stand.played.registry, none,
                                                 MUSTER_REGISTRY_KEY, 0, on_changes, on_end),
                     MUSTER_INVALID_ARGUMENT);
    stand.played.test.mem.fail_at = 1;
    assert_int_equal(muster_registry_watch_start(&stand.watch, stand.played.registry, key,
                                                 MUSTER_REGISTRY_KEY, 0, on_changes, on_end),
                     MUSTER_RESOURCE_EXHAUSTED);
    played_registry_hang_up(&stand.played);
    assert_int_equal(muster_registry_watch_start(&stand.watch, stand.played.registry, key,
                                                 MUSTER_REGISTRY_KEY, 0, on_changes, on_end),
                     MUSTER_FAILED_PRECONDITION);
    for (enum kind kind = RANGE; kind <= TIME_TO_LIVE; kind++)
        assert_int_equal(start_op(&stand, kind), MUSTER_FAILED_PRECONDITION);
    stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest registry_client_resume[] = {
        cmocka_unit_test(what_may_have_changed_something_is_not_asked_twice),
        cmocka_unit_test(a_second_answer_to_an_operation_is_ignored),
        cmocka_unit_test(operations_on_no_key_are_refused),
        cmocka_unit_test(no_memory_to_start_is_told),
        cmocka_unit_test(a_watch_goes_on_where_it_broke),
        cmocka_unit_test(a_watch_that_is_stopped_ends_its_stream_at_the_registry),
        cmocka_unit_test(a_watch_of_nothing_or_of_a_closed_registry_is_refused),
    };

    return cmocka_run_group_tests(registry_client_resume, NULL, NULL);
}
