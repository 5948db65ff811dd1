/* The plan of the next communicator when the members have changed, as a table. */
#include "test_env.h"

#include "collective/gpu/setup.h"
#include "collective/gpu/nccl_library.h"

#include <string.h>

#define ALL (MUSTER_NCCL_SHRINK | MUSTER_NCCL_REVOKE | MUSTER_NCCL_GROW)

#define NONE    MUSTER_GPU_PARENT_NONE
#define READY   MUSTER_GPU_PARENT_READY
#define REVOKED MUSTER_GPU_PARENT_REVOKED

struct member {
    enum muster_gpu_parent parent;
    uint32_t rank, count;
    uint64_t key;
};

struct row {
    const char *name;
    unsigned features;
    uint32_t count;
    struct member members[4];
    enum muster_gpu_plan_kind kind;
};

static const struct row rows[] = {
    {"nobody has one", ALL, 2, {{NONE, 0, 0, 0}, {NONE, 0, 0, 0}}, MUSTER_GPU_PLAN_INIT},
    {"all have it", ALL, 2, {{READY, 0, 2, 7}, {READY, 1, 2, 7}}, MUSTER_GPU_PLAN_KEEP},
    {"it is revoked somewhere",
     ALL,
     2,
     {{READY, 0, 2, 7}, {REVOKED, 1, 2, 7}},
     MUSTER_GPU_PLAN_INIT},
    {"one has left", ALL, 2, {{READY, 0, 3, 7}, {READY, 2, 3, 7}}, MUSTER_GPU_PLAN_SHRINK},
    {"one has left in the middle of work",
     ALL,
     2,
     {{REVOKED, 1, 3, 7}, {READY, 2, 3, 7}},
     MUSTER_GPU_PLAN_SHRINK},
    {"one had to abort it", ALL, 2, {{NONE, 0, 0, 0}, {READY, 2, 3, 7}}, MUSTER_GPU_PLAN_INIT},
    {"an old library cannot shrink",
     0,
     2,
     {{READY, 0, 3, 7}, {READY, 2, 3, 7}},
     MUSTER_GPU_PLAN_INIT},
    {"they have different ones",
     ALL,
     2,
     {{READY, 0, 3, 7}, {READY, 2, 3, 8}},
     MUSTER_GPU_PLAN_INIT},
    {"one has a rank that it cannot have",
     ALL,
     2,
     {{READY, 0, 3, 7}, {READY, 3, 3, 7}},
     MUSTER_GPU_PLAN_INIT},
    {"they count its members differently",
     ALL,
     2,
     {{READY, 0, 3, 7}, {READY, 2, 4, 7}},
     MUSTER_GPU_PLAN_INIT},
    {"their order has changed", ALL, 2, {{READY, 2, 3, 7}, {READY, 0, 3, 7}}, MUSTER_GPU_PLAN_INIT},
    {"one has come",
     ALL,
     3,
     {{READY, 0, 2, 7}, {READY, 1, 2, 7}, {NONE, 0, 0, 0}},
     MUSTER_GPU_PLAN_GROW},
    {"who has come has another one",
     ALL,
     3,
     {{READY, 0, 2, 7}, {READY, 1, 2, 7}, {READY, 0, 2, 8}},
     MUSTER_GPU_PLAN_GROW},
    {"one has come in the middle of work",
     ALL,
     3,
     {{REVOKED, 0, 2, 7}, {READY, 1, 2, 7}, {NONE, 0, 0, 0}},
     MUSTER_GPU_PLAN_INIT},
    {"an old library cannot grow",
     MUSTER_NCCL_SHRINK,
     3,
     {{READY, 0, 2, 7}, {READY, 1, 2, 7}, {NONE, 0, 0, 0}},
     MUSTER_GPU_PLAN_INIT},
    {"one has come between them",
     ALL,
     3,
     {{READY, 0, 2, 7}, {NONE, 0, 0, 0}, {READY, 1, 2, 7}},
     MUSTER_GPU_PLAN_INIT},
    {"one has left and one has come",
     ALL,
     2,
     {{READY, 0, 2, 7}, {NONE, 0, 0, 0}},
     MUSTER_GPU_PLAN_INIT},
    {"one has left and two have come",
     ALL,
     3,
     {{READY, 0, 2, 7}, {NONE, 0, 0, 0}, {NONE, 0, 0, 0}},
     MUSTER_GPU_PLAN_INIT},
    {"alone", ALL, 1, {{REVOKED, 1, 2, 7}}, MUSTER_GPU_PLAN_SHRINK},
};

static struct muster_gpu_plan plan_of(const struct row *row)
{
    struct muster_gpu_standing standings[4];

    memset(standings, 0, sizeof(standings));
    for (uint32_t i = 0; i < row->count; i++) {
        standings[i].version = 23007;
        standings[i].features = row->features;
        standings[i].parent = row->members[i].parent;
        standings[i].parent_rank = row->members[i].rank;
        standings[i].parent_count = row->members[i].count;
        standings[i].parent_key = row->members[i].key;
    }
    return muster_gpu_plan_make(standings, row->count);
}

static void the_plan_follows_from_what_all_have(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_gpu_plan plan = plan_of(&rows[i]);

        if (plan.kind != rows[i].kind)
            fail_msg("%s: plan %d, not %d", rows[i].name, plan.kind, rows[i].kind);
        if (plan.kind == MUSTER_GPU_PLAN_GROW)
            assert_int_equal(plan.old_count, 2);
    }
}

static void one_feature_less_on_one_member_counts_for_all(void **state)
{
    struct muster_gpu_standing standings[2] = {
        {.version = 23007, .features = ALL, .parent = READY, .parent_count = 3, .parent_key = 7},
        {.version = 23007, .parent = READY, .parent_rank = 1, .parent_count = 3, .parent_key = 7},
    };

    (void)state;
    assert_int_equal(muster_gpu_plan_make(standings, 2).kind, MUSTER_GPU_PLAN_INIT);
}

static void different_versions_are_refused_by_name(void **state)
{
    struct muster_gpu_standing standings[3] = {
        {.version = 23007}, {.version = 23007}, {.version = 22902}};
    struct muster_gpu_plan plan = muster_gpu_plan_make(standings, 3);

    (void)state;
    assert_int_equal(plan.kind, MUSTER_GPU_PLAN_REFUSE);
    assert_int_equal(plan.error.rc, MUSTER_UNAVAILABLE);
    assert_string_equal(plan.error.text, "rank 2 has NCCL 22902, rank 0 23007: all need the same");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_follows_from_what_all_have),
        cmocka_unit_test(one_feature_less_on_one_member_counts_for_all),
        cmocka_unit_test(different_versions_are_refused_by_name),
    };

    return cmocka_run_group_tests_name("collective.gpu_plan", tests, NULL, NULL);
}
