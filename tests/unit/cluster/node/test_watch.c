/* A node's reading of the keys that it finds in the registry, and of its own. */
#include "node_stand.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cluster/node/node_internal.h"
#include "collective/view/view_proto.h"

static struct node_stand stand; /* of the case that runs */

#define OTHER "07070707070707070707070707070707" /* a process that is no more than its record */
#define THIRD "08080808080808080808080808080808" /* another, of no task of its own */

/* --- Keys --- */

enum value {
    NONE,
    GARBAGE,
    RECORD,            /* of OTHER, task 1 of this host */
    RECORD_OF_ANOTHER, /* with another number inside */
    RECORD_OF_ANOTHER_VERSION,
    VIEW, /* view 3, of OTHER alone */
    VIEW_OF_ANOTHER_JOB,
    VIEW_OF_TWO, /* view 3, of OTHER and THIRD */
    DEATH,
    DEATH_WITH_WORK_DONE,
};

static struct muster_member member_of(uint8_t number)
{
    struct muster_member member = {
        .task_type = "worker", .task_index = 1, .host_key = NODE_STAND_HOST};

    memset(member.incarnation.bytes, number, sizeof(member.incarnation.bytes));
    member.pid = getpid(); /* a process that lives */
    assert_int_equal(muster_address_parse("127.0.0.1:9", &member.address, NULL), MUSTER_OK);
    return member;
}

static void pack_view(enum value value, void **bytes, size_t *size)
{
    struct muster_member members[2] = {member_of(7), member_of(8)};
    struct muster_view fields = {
        .epoch = 3, .members = members, .member_count = value == VIEW_OF_TWO ? 2 : 1};
    struct muster_view *view = NULL;

    members[1].task_index = 2;
    strcpy(fields.job, value == VIEW_OF_ANOTHER_JOB ? "another" : NODE_STAND_JOB);
    assert_int_equal(muster_view_new(stand.pair.env->mem, &fields, &view), MUSTER_OK);
    assert_int_equal(muster_view_pack(view, stand.pair.env->mem, bytes, size), MUSTER_OK);
    muster_view_unref(view);
}

static void put_key(const char *key, enum value value)
{
    static const uint8_t version[] = {8 << 3, 99}; /* Member.version; the last one counts */
    const struct muster_member_record record = {.member =
                                                    member_of(value == RECORD_OF_ANOTHER ? 8 : 7)};
    const char *text = value == DEATH                  ? "SIGKILL"
                       : value == DEATH_WITH_WORK_DONE ? "exit 0 at step 5, done"
                                                       : "\xff\xff";
    char whole[120];
    void *bytes = NULL;
    size_t size = 0;

    if (value == RECORD || value == RECORD_OF_ANOTHER || value == RECORD_OF_ANOTHER_VERSION)
        assert_int_equal(muster_member_record_pack(&record, stand.pair.env->mem, &bytes, &size),
                         MUSTER_OK);
    else if (value == VIEW || value == VIEW_OF_ANOTHER_JOB || value == VIEW_OF_TWO)
        pack_view(value, &bytes, &size);
    if (value == RECORD_OF_ANOTHER_VERSION) {
        bytes = muster_mem_realloc(stand.pair.env->mem, bytes, size + sizeof(version));
        memcpy((uint8_t *)bytes + size, version, sizeof(version));
        size += sizeof(version);
    }
    (void)snprintf(whole, sizeof(whole), NODE_STAND_FOLDER "%s", key);
    assert_int_equal(
        registry_pair_finish_op(
            &stand.pair,
            muster_registry_put_start(
                &stand.pair.op, stand.pair.registry, registry_pair_bytes_of(whole),
                bytes != NULL ? (struct muster_bytes){bytes, size} : registry_pair_bytes_of(text),
                0, registry_pair_soon(&stand.pair), registry_pair_on_op)),
        MUSTER_OK);
    muster_mem_free(stand.pair.env->mem, bytes);
}

/* --- Cases --- */

static void only_what_is_whole_and_of_the_job_counts(void **state)
{
    static const struct {
        const char *name, *key;
        enum value value;
        const char *second_key;
        enum value second;
        const char *told;
        uint64_t epoch;
    } rows[] = {
        {"nothing", NULL, NONE, NULL, NONE, "view:1 ", 1},
        {"a record", "members/" OTHER, RECORD, NULL, NONE, "view:2 ", 1},
        {"a record of another", "members/" OTHER, RECORD_OF_ANOTHER, NULL, NONE, "view:1 ", 1},
        {"a damaged record", "members/" OTHER, GARBAGE, NULL, NONE, "view:1 ", 1},
        {"a record of another version", "members/" OTHER, RECORD_OF_ANOTHER_VERSION, NULL, NONE,
         "failed:9 ", 0},
        {"a longer name", "members/" OTHER "0", RECORD, NULL, NONE, "view:1 ", 1},
        {"a shorter name", "members/070707", RECORD, NULL, NONE, "view:1 ", 1},
        {"no number", "members/x7070707070707070707070707070707", RECORD, NULL, NONE, "view:1 ", 1},
        {"another folder", "remembe/" OTHER, RECORD, NULL, NONE, "view:1 ", 1},
        {"the dead", "members/" OTHER, RECORD, "dead/" OTHER, DEATH, "view:1 ", 1},
        {"a damaged view", "view", GARBAGE, NULL, NONE, "failed:15 ", 0},
        {"a view of another job", "view", VIEW_OF_ANOTHER_JOB, NULL, NONE, "failed:9 ", 0},
        {"what begins as a view", "views", GARBAGE, NULL, NONE, "view:1 ", 1},
        {"what ends as a view", "vie", GARBAGE, NULL, NONE, "view:1 ", 1},
        {"a view of the dead", "view", VIEW, "dead/" OTHER, DEATH, "view:1 ", 4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        node_stand_open(&stand);
        if (rows[i].key != NULL)
            put_key(rows[i].key, rows[i].value);
        if (rows[i].second_key != NULL)
            put_key(rows[i].second_key, rows[i].second);
        node_stand_open_node(&stand);
        node_stand_wait(&stand);

        if (strcmp(stand.told, rows[i].told) != 0 || stand.epoch != rows[i].epoch)
            fail_msg("%s: '%s' in view %u", rows[i].name, stand.told, (unsigned)stand.epoch);
        node_stand_end(&stand);
    }
}

static void what_is_put_later_counts_too(void **state)
{
    static const struct {
        const char *key;
        enum value value;
        const char *told;
    } rows[] = {
        {"view", GARBAGE, "failed:15 "},
        {"view", VIEW_OF_ANOTHER_JOB, "failed:9 "},
        {"view", VIEW, "excluded:10 "}, /* a later view, without this process */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        node_stand_begin(&stand);
        assert_string_equal(stand.told, "view:1 ");
        stand.told[0] = '\0';
        put_key(rows[i].key, rows[i].value);
        node_stand_wait(&stand);

        if (strcmp(stand.told, rows[i].told) != 0)
            fail_msg("row %zu: '%s'", i, stand.told);
        node_stand_end(&stand);
    }
}

static void remove_key(const char *key)
{
    char whole[120];

    (void)snprintf(whole, sizeof(whole), NODE_STAND_FOLDER "%s", key);
    assert_int_equal(registry_pair_remove_keys(&stand.pair, whole, MUSTER_REGISTRY_KEY), MUSTER_OK);
}

static void a_view_that_is_deleted_says_nothing(void **state)
{
    (void)state;
    node_stand_begin(&stand);
    assert_string_equal(stand.told, "view:1 ");
    stand.told[0] = '\0';
    remove_key("view");
    put_key("view", VIEW_OF_ANOTHER_JOB);
    node_stand_wait(&stand);

    assert_string_equal(stand.told, "failed:9 ");
}

static bool is_watching(void *data)
{
    return ((struct node_stand *)data)->node->registry.watching == NODE_WATCHING;
}

/* Launchers delete such keys when there are many. */
static void the_work_of_the_dead_is_done_although_its_key_is_deleted(void **state)
{
    (void)state;
    node_stand_open(&stand);
    put_key("view", VIEW_OF_TWO);
    assert_int_equal(node_stand_try_node(&stand, (struct muster_node_options){.is_return = true}),
                     MUSTER_OK);
    test_env_run_until(stand.pair.env, is_watching, &stand);
    put_key("dead/" OTHER, DEATH_WITH_WORK_DONE);
    remove_key("dead/" OTHER);
    put_key("dead/" THIRD, DEATH);
    node_stand_wait(&stand);

    assert_string_equal(stand.told, "failed:11 "); /* the job is over, and does not begin anew */
    assert_non_null(strstr(stand.error.text, "the job has ended"));
}

static bool is_registered(void *data)
{
    return ((struct node_stand *)data)->node->registry.registration == NODE_REGISTERED;
}

/* The job is of the version that was there first: the other one is to give up. */
static void who_was_first_does_not_yield_to_another_version(void **state)
{
    (void)state;
    node_stand_open(&stand);
    assert_int_equal(node_stand_try_node(&stand, (struct muster_node_options){.expected_count = 2}),
                     MUSTER_OK);
    test_env_run_until(stand.pair.env, is_registered, &stand);
    put_key("members/" OTHER, RECORD_OF_ANOTHER_VERSION);
    put_key("members/" OTHER, RECORD);
    node_stand_wait(&stand);

    assert_string_equal(stand.told, "view:2 ");
}

static void its_own_key_is_put_again_and_goes_with_it(void **state)
{
    (void)state;
    node_stand_begin(&stand);
    assert_int_equal(registry_pair_remove_keys(&stand.pair, NODE_STAND_FOLDER "members/",
                                               MUSTER_REGISTRY_PREFIX),
                     MUSTER_OK);
    registry_pair_wait_for_keys(&stand.pair, NODE_STAND_FOLDER "members/", 1);
    node_stand_close_node(&stand);
    assert_int_equal(
        registry_pair_range(&stand.pair, NODE_STAND_FOLDER "members/", MUSTER_REGISTRY_PREFIX),
        MUSTER_OK);

    assert_int_equal(stand.pair.kv_count, 0);
    node_stand_close(&stand);
}

TEST_SET_UP(tear_down, node_stand_end(&stand))
#define CASE(name) cmocka_unit_test_teardown(name, tear_down)

static enum muster_rc watch_without_files(struct muster_host *host,
                                          struct muster_process_watch *watch)
{
    (void)host;
    (void)watch;
    return MUSTER_RESOURCE_EXHAUSTED;
}

/* It cannot reach the others either, who would wait for it. */
static void who_has_no_files_left_says_so_and_ends(void **state)
{
    const struct muster_host_ops *ops;
    struct muster_host_ops few;

    (void)state;
    node_stand_open(&stand);
    ops = stand.pair.env->host->ops;
    few = *ops;
    few.watch = watch_without_files;
    put_key("members/" OTHER, RECORD);
    stand.pair.env->host->ops = &few;
    node_stand_open_node(&stand);
    node_stand_wait(&stand);

    assert_string_equal(stand.told, "failed:8 ");
    assert_non_null(strstr(stand.error.text, "too many open files"));
    assert_non_null(strstr(stand.error.text, "ulimit -n"));
    stand.pair.env->host->ops = ops;
    node_stand_end(&stand);
}

int main(void)
{
    const struct CMUnitTest node_watch[] = {
        cmocka_unit_test(only_what_is_whole_and_of_the_job_counts),
        cmocka_unit_test(what_is_put_later_counts_too),
        cmocka_unit_test(who_has_no_files_left_says_so_and_ends),
        CASE(a_view_that_is_deleted_says_nothing),
        CASE(the_work_of_the_dead_is_done_although_its_key_is_deleted),
        CASE(who_was_first_does_not_yield_to_another_version),
        cmocka_unit_test(its_own_key_is_put_again_and_goes_with_it),
    };

    return cmocka_run_group_tests(node_watch, NULL, NULL);
}
