/* Observers of an election, before a registry that is played by hand. */
#include "played_registry.h"
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/locks.h>

#include "proto/etcd.pb-c.h"
#include "proto/guard.h"

#define LIVES_MAX 4

struct row {
    const char *name;
    const char *ranges[LIVES_MAX];  /* "5" has a leader since revision 5, "-" none, "!13" fails */
    const char *watches[LIVES_MAX]; /* "P6" puts its key, "D7" deletes it, "K9" is compacted */
    const char *shown;              /* revisions of leaders; "- " nobody */
    const char *keys;               /* that were watched: "k" the leader's, "q" all of the queue */
};

struct stand {
    struct played_registry played;
    const struct row *row;
    unsigned ranges, watches;
    struct muster_election_watch watch;
    char shown[80], keys[16];
};

/* --- The registry --- */

static void send_packed(struct muster_rpc *rpc, const void *message)
{
    struct muster_mem *mem = muster_rpc_env(rpc)->mem;
    void *bytes = NULL;
    size_t size = 0;

    assert_int_equal(muster_proto_pack(mem, message, &bytes, &size), MUSTER_OK);
    assert_int_equal(muster_rpc_send(rpc, bytes, size), MUSTER_OK);
    muster_mem_free(mem, bytes);
}

static void fill_leader(Mvccpb__KeyValue *kv, int64_t revision)
{
    mvccpb__key_value__init(kv);
    kv->key = (ProtobufCBinaryData){3, (uint8_t *)(uintptr_t)"e/1"};
    kv->mod_revision = revision;
}

static void on_range(struct muster_rpc *rpc, struct muster_bytes request)
{
    struct stand *stand = muster_rpc_service(rpc);
    Etcdserverpb__RangeResponse answer = ETCDSERVERPB__RANGE_RESPONSE__INIT;
    Etcdserverpb__ResponseHeader header = ETCDSERVERPB__RESPONSE_HEADER__INIT;
    Mvccpb__KeyValue kv, *kvs[1] = {&kv};
    const char *life;

    (void)request;
    assert_true(stand->ranges < LIVES_MAX && stand->row->ranges[stand->ranges] != NULL);
    life = stand->row->ranges[stand->ranges++];
    if (*life == '!') {
        muster_rpc_finish(rpc, (enum muster_rc)atoi(life + 1), "so");
        return;
    }
    header.cluster_id = 1;
    header.revision = 5;
    answer.header = &header;
    if (*life != '-') {
        fill_leader(&kv, atoi(life));
        answer.kvs = kvs;
        answer.n_kvs = 1;
    }
    send_packed(rpc, &answer);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void say_word(struct muster_rpc *rpc, const char *word)
{
    Etcdserverpb__WatchResponse answer = ETCDSERVERPB__WATCH_RESPONSE__INIT;
    Etcdserverpb__ResponseHeader header = ETCDSERVERPB__RESPONSE_HEADER__INIT;
    Mvccpb__Event event = MVCCPB__EVENT__INIT, *events[1] = {&event};
    Mvccpb__KeyValue kv;

    header.cluster_id = 1;
    header.revision = atoi(word + 1);
    answer.header = &header;
    fill_leader(&kv, header.revision);
    event.kv = &kv;
    if (*word == 'D')
        event.type = MVCCPB__EVENT__EVENT_TYPE__DELETE;
    answer.created = *word == 'C';
    answer.canceled = *word == 'K';
    answer.compact_revision = *word == 'K' ? header.revision : 0;
    answer.n_events = *word == 'P' || *word == 'D';
    answer.events = events;
    send_packed(rpc, &answer);
}

static void on_watch(struct muster_rpc *rpc, struct muster_bytes bytes)
{
    struct stand *stand = muster_rpc_service(rpc);
    Etcdserverpb__WatchRequest *request = NULL;
    size_t length = strlen(stand->keys);

    assert_int_equal(muster_proto_unpack(stand->played.env->mem,
                                         &etcdserverpb__watch_request__descriptor, bytes.data,
                                         bytes.size, NULL, &request, NULL),
                     MUSTER_OK);
    assert_int_equal(request->create_request->start_revision, 6);
    stand->keys[length] = request->create_request->range_end.len == 0 ? 'k' : 'q';
    muster_proto_free(request);
    assert_true(stand->watches < LIVES_MAX && stand->row->watches[stand->watches] != NULL);
    say_word(rpc, "C5");
    for (const char *at = stand->row->watches[stand->watches++]; at != NULL && *at != '\0';
         at = strchr(at, ' ')) {
        at += *at == ' ';
        say_word(rpc, at);
    }
}

static const struct muster_rpc_method methods[] = {
    {.path = "/etcdserverpb.KV/Range", .on_message = on_range, .is_unary = true},
    {.path = "/etcdserverpb.Watch/Watch", .on_message = on_watch},
};

/* --- The stand --- */

static void on_leader(struct muster_election_watch *watch, const struct muster_registry_kv *leader)
{
    struct stand *stand = watch->data;
    size_t length = strlen(stand->shown);

    if (leader == NULL)
        (void)snprintf(stand->shown + length, sizeof(stand->shown) - length, "- ");
    else
        (void)snprintf(stand->shown + length, sizeof(stand->shown) - length, "%u ",
                       (unsigned)leader->mod_revision);
}

/* torture NULL: nothing is refused. */
static enum muster_rc stand_open(struct stand *stand, const struct row *row,
                                 struct torture *torture)
{
    enum muster_rc rc;

    memset(stand, 0, sizeof(*stand));
    stand->row = row;
    stand->watch.data = stand;
    played_registry_open(&stand->played, methods, sizeof(methods) / sizeof(methods[0]), stand,
                         NULL);
    if (torture != NULL)
        torture_arm_limited(torture, &stand->played.test.mem);
    rc = muster_election_watch_start(&stand->watch, stand->played.registry,
                                     (struct muster_bytes){"e", 1}, on_leader);
    if (torture != NULL)
        torture_disarm(torture);
    return rc;
}

static void stand_close(struct stand *stand)
{
    muster_election_watch_stop(&stand->watch);
    played_registry_close(&stand->played);
}

static bool is_settled(void *data)
{
    const struct stand *stand = data;

    return strlen(stand->shown) >= strlen(stand->row->shown) &&
           strlen(stand->keys) >= strlen(stand->row->keys);
}

/* --- Cases --- */

static const struct row rows[] = {
    {"a leader", {"5"}, {""}, "5 ", "k"},
    {"nobody", {"-"}, {""}, "- ", "q"},
    {"a new word", {"5"}, {"P7"}, "5 7 ", "k"},
    {"two of them", {"5"}, {"P7 P9"}, "5 7 9 ", "k"},
    {"it goes, and another leads", {"5", "9"}, {"D8", ""}, "5 9 ", "kk"},
    {"it goes, and nobody comes", {"5", "-"}, {"D8", ""}, "5 - ", "kq"},
    {"somebody comes", {"-", "9"}, {"P9", ""}, "- 9 ", "qk"},
    {"somebody who never led goes", {"-"}, {"D9"}, "- ", "q"},
    {"it is compacted", {"5", "9"}, {"K9", ""}, "5 9 ", "kk"},
    {"it is compacted, and the same leads", {"5", "5"}, {"K9", ""}, "5 ", "kk"},
    {"a look fails", {"!13", "!13", "5"}, {""}, "5 ", "k"},
};

static void each_leader_is_shown_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stand stand;

        assert_int_equal(stand_open(&stand, &rows[i], NULL), MUSTER_OK);
        test_env_run_until(stand.played.env, is_settled, &stand);
        for (uint64_t end_ns = muster_loop_after_ns(stand.played.env->loop, 10 * MUSTER_NS_PER_MS);
             muster_loop_now_ns(stand.played.env->loop) < end_ns;) /* and nothing more */
            test_env_turn(stand.played.env, 1);

        if (strcmp(stand.shown, rows[i].shown) != 0 || strcmp(stand.keys, rows[i].keys) != 0)
            fail_msg("%s: shown %s, watched %s", rows[i].name, stand.shown, stand.keys);
        stand_close(&stand);
    }
}

/* The first allocation is of the watch; without memory for what follows it looks again. */
static void run_watch(struct torture *torture, const void *data)
{
    bool is_first = torture->fail_at == 1;
    struct stand stand;
    enum muster_rc rc;

    (void)data;
    rc = stand_open(&stand, &rows[0], torture);
    assert_int_equal(rc, is_first ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    if (rc == MUSTER_OK)
        test_env_run_until(stand.played.env, is_settled, &stand);
    assert_string_equal(stand.shown, rc == MUSTER_OK ? "5 " : "");
    stand_close(&stand);
}

static void want_of_memory_is_told_or_waited_out(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "watch", .run = run_watch});
}

static bool has_been_answered(void *data)
{
    return ((struct stand *)data)->watch.asking == NULL;
}

static void it_asks_nothing_more_when_the_client_closes(void **state)
{
    static const struct row silent = {.ranges = {"5"}, .watches = {""}, .shown = "5 ", .keys = "k"};
    struct stand stand;

    (void)state;
    assert_int_equal(stand_open(&stand, &silent, NULL), MUSTER_OK);
    played_registry_hang_up(&stand.played);
    test_env_run_until(stand.played.env, has_been_answered, &stand);

    assert_string_equal(stand.shown, "");
    assert_false(muster_timer_is_started(&stand.watch.again));
    stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest election_watch[] = {
        cmocka_unit_test(each_leader_is_shown_once),
        cmocka_unit_test(want_of_memory_is_told_or_waited_out),
        cmocka_unit_test(it_asks_nothing_more_when_the_client_closes),
    };

    return cmocka_run_group_tests(election_watch, NULL, NULL);
}
