/* The view as a value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <muster/view.h>

#include <stdio.h>
#include <string.h>

#include "tests/lib/careful_mem.h"

static struct muster_member make_member(const char *type, uint32_t index, uint8_t incarnation)
{
    struct muster_member member;

    memset(&member, 0, sizeof(member));
    snprintf(member.task_type, sizeof(member.task_type), "%s", type);
    member.task_index = index;
    member.incarnation.bytes[15] = incarnation;
    return member;
}

static struct muster_view make_fields(struct muster_member *members, uint32_t count)
{
    struct muster_view fields;

    memset(&fields, 0, sizeof(fields));
    snprintf(fields.job, sizeof(fields.job), "job");
    fields.epoch = 7;
    fields.members = members;
    fields.member_count = count;
    return fields;
}

static int view_setup(void **state)
{
    static struct muster_mem_limited mem;

    muster_mem_limited_init(&mem, careful_mem(), 0);
    *state = &mem;
    return 0;
}

static int view_teardown(void **state)
{
    return muster_mem_limited_fini(*state) == 0 ? 0 : 1;
}

static void members_are_ordered_chief_first_then_by_name_and_index(void **state)
{
    struct muster_member members[] = {make_member("worker", 10, 1), make_member("worker", 2, 2),
                                      make_member("evaluator", 0, 3), make_member("chief", 0, 4)};
    struct muster_view fields = make_fields(members, 4);
    struct muster_view *view = NULL;

    assert_int_equal(muster_view_new(*state, &fields, &view), MUSTER_OK);

    assert_string_equal(view->members[0].task_type, "chief");
    assert_string_equal(view->members[1].task_type, "evaluator");
    assert_int_equal(view->members[2].task_index, 2);
    assert_int_equal(view->members[3].task_index, 10);
    muster_view_unref(view);
}

static void find_gives_the_rank_of_a_member_only(void **state)
{
    struct muster_member members[] = {make_member("worker", 1, 1), make_member("worker", 0, 2)};
    struct muster_view fields = make_fields(members, 2);
    struct muster_incarnation stranger = {.bytes = {9}};
    struct muster_view *view = NULL;
    uint32_t rank = 77;

    assert_int_equal(muster_view_new(*state, &fields, &view), MUSTER_OK);

    assert_true(muster_view_find(view, &members[0].incarnation, &rank));
    assert_int_equal(rank, 1);
    assert_false(muster_view_find(view, &stranger, &rank));
    assert_int_equal(rank, 1);
    assert_true(muster_view_find(view, &members[1].incarnation, NULL));
    muster_view_unref(view);
}

static void digest_does_not_depend_on_the_order_of_input(void **state)
{
    struct muster_member one[] = {make_member("worker", 0, 1), make_member("worker", 1, 2)};
    struct muster_member two[] = {one[1], one[0]};
    struct muster_view fields_one = make_fields(one, 2), fields_two = make_fields(two, 2);
    struct muster_view *a = NULL, *b = NULL;

    assert_int_equal(muster_view_new(*state, &fields_one, &a), MUSTER_OK);
    assert_int_equal(muster_view_new(*state, &fields_two, &b), MUSTER_OK);

    assert_true(a->digest == b->digest);
    muster_view_unref(a);
    muster_view_unref(b);
}

static uint64_t digest_of(struct muster_mem *mem, const struct muster_view *fields)
{
    struct muster_view *view = NULL;
    uint64_t digest;

    assert_int_equal(muster_view_new(mem, fields, &view), MUSTER_OK);
    digest = view->digest;
    muster_view_unref(view);
    return digest;
}

static void digest_sees_every_field(void **state)
{
    struct muster_member members[] = {make_member("worker", 0, 1), make_member("worker", 1, 2)};
    struct muster_chunk_source source = {.first = 1, .count = 2, .rank = 1};
    struct muster_verdict verdict = {.op = {.step = 3}, .descriptor = 5, .chunk_count = 4};
    struct muster_view fields = make_fields(members, 2);
    uint64_t digests[40], before;
    size_t count = 0;

    digests[count++] = digest_of(*state, &fields);
    fields.epoch++;
    digests[count++] = digest_of(*state, &fields);
    fields.job[0] = 'k';
    digests[count++] = digest_of(*state, &fields);
    fields.plan.chunk_bytes = 1;
    digests[count++] = digest_of(*state, &fields);
    fields.plan.direct_max_bytes = 1;
    digests[count++] = digest_of(*state, &fields);
    fields.plan.forced = MUSTER_ALGORITHM_RING;
    digests[count++] = digest_of(*state, &fields);
    fields.plan.is_reproducible = true;
    digests[count++] = digest_of(*state, &fields);
    fields.plan.row_count = 1;
    fields.plan.rows[0].algorithm = MUSTER_ALGORITHM_RING;
    digests[count++] = digest_of(*state, &fields);
    fields.plan.rows[0].bytes_max = 7;
    digests[count++] = digest_of(*state, &fields);
    fields.communication.implementation = MUSTER_COMMUNICATION_RING;
    digests[count++] = digest_of(*state, &fields);
    fields.communication.bytes_per_pack = 1;
    digests[count++] = digest_of(*state, &fields);
    fields.communication.timeout_ns = 1;
    digests[count++] = digest_of(*state, &fields);
    fields.data_protection = MUSTER_DATA_AUTHENTICATED;
    digests[count++] = digest_of(*state, &fields);
    fields.is_fixed_size = true;
    digests[count++] = digest_of(*state, &fields);
    fields.begin_epoch = 1;
    digests[count++] = digest_of(*state, &fields);
    fields.is_stopping = true;
    digests[count++] = digest_of(*state, &fields);
    fields.stop_step = 1;
    digests[count++] = digest_of(*state, &fields);
    fields.is_done = true;
    digests[count++] = digest_of(*state, &fields);
    fields.done_step = 1;
    digests[count++] = digest_of(*state, &fields);
    fields.done_calls = 1;
    digests[count++] = digest_of(*state, &fields);
    fields.done_by[0] = 'w';
    digests[count++] = digest_of(*state, &fields);
    fields.begun_step = 1;
    digests[count++] = digest_of(*state, &fields);
    fields.reason[0] = 'x';
    digests[count++] = digest_of(*state, &fields);
    members[1].from_step = 4;
    digests[count++] = digest_of(*state, &fields);
    members[1].pid = 4;
    digests[count++] = before = digest_of(*state, &fields);
    members[1].replica_count = 1; /* as a member that says nothing */
    assert_true(digest_of(*state, &fields) == before);
    members[1].replica_count = 2;
    digests[count++] = digest_of(*state, &fields);
    members[1].replica_count = 3;
    digests[count++] = digest_of(*state, &fields);
    members[0].address.family = MUSTER_ADDRESS_IPV4;
    digests[count++] = digest_of(*state, &fields);
    members[0].address.ip[3] = 1;
    digests[count++] = digest_of(*state, &fields);
    members[0].host_key[0] = 'h';
    digests[count++] = digest_of(*state, &fields);
    members[0].task_type[0] = members[1].task_type[0] = 'x';
    digests[count++] = digest_of(*state, &fields);
    members[1].task_index++;
    digests[count++] = digest_of(*state, &fields);
    members[1].incarnation.bytes[0] = 1;
    digests[count++] = digest_of(*state, &fields);
    fields.verdicts = &verdict;
    fields.verdict_count = 1;
    digests[count++] = digest_of(*state, &fields);
    verdict.kind = MUSTER_VERDICT_RETRY;
    digests[count++] = digest_of(*state, &fields);
    verdict.sources = &source;
    verdict.source_count = 1;
    digests[count++] = digest_of(*state, &fields);

    for (size_t i = 0; i < count; i++)
        for (size_t k = i + 1; k < count; k++)
            assert_true(digests[i] != digests[k]);
}

static void verdict_is_found_by_operation(void **state)
{
    struct muster_member members[] = {make_member("worker", 0, 1)};
    struct muster_chunk_source source = {.first = 1, .count = 2, .rank = 0};
    struct muster_verdict verdicts[] = {
        {.op = {.step = 2, .sequence = 1}, .kind = MUSTER_VERDICT_RETRY},
        {.op = {.step = 2, .sequence = 0},
         .kind = MUSTER_VERDICT_ADOPT,
         .sources = &source,
         .source_count = 1}};
    struct muster_view fields = make_fields(members, 1);
    struct muster_op_id absent = {.step = 2, .lane = 1};
    struct muster_view *view = NULL;

    fields.verdicts = verdicts;
    fields.verdict_count = 2;
    assert_int_equal(muster_view_new(*state, &fields, &view), MUSTER_OK);
    source.first = 9;

    assert_int_equal(muster_view_verdict(view, &verdicts[0].op)->kind, MUSTER_VERDICT_RETRY);
    assert_null(muster_view_verdict(view, &verdicts[0].op)->sources);
    assert_int_equal(muster_view_verdict(view, &verdicts[1].op)->sources[0].first, 1);
    assert_null(muster_view_verdict(view, &absent));
    muster_view_unref(view);
}

static void fields_that_are_no_view_are_refused(void **state)
{
    struct muster_member twice[] = {make_member("worker", 0, 1), make_member("worker", 1, 1)};
    struct muster_member zero[] = {make_member("worker", 0, 0)};
    struct muster_view fields = make_fields(twice, 2);
    struct muster_view *view = NULL;

    assert_int_equal(muster_view_new(*state, &fields, &view), MUSTER_INVALID_ARGUMENT);
    fields = make_fields(zero, 1);
    assert_int_equal(muster_view_new(*state, &fields, &view), MUSTER_INVALID_ARGUMENT);
    fields = make_fields(twice, 1);
    memset(twice[0].host_key, 'x', sizeof(twice[0].host_key));
    assert_int_equal(muster_view_new(*state, &fields, &view), MUSTER_INVALID_ARGUMENT);
    assert_null(view);
}

static void a_view_without_members_says_that_all_have_left(void **state)
{
    struct muster_view fields = make_fields(NULL, 0);
    struct muster_view *view = NULL;

    assert_int_equal(muster_view_new(*state, &fields, &view), MUSTER_OK);
    assert_int_equal(view->member_count, 0);
    muster_view_unref(view);
}

static void the_last_reference_frees(void **state)
{
    struct muster_mem_limited *mem = *state;
    struct muster_member members[] = {make_member("worker", 0, 1)};
    struct muster_view fields = make_fields(members, 1);
    struct muster_view *view = NULL;

    assert_int_equal(muster_view_new(*state, &fields, &view), MUSTER_OK);
    muster_view_unref(muster_view_ref(view));
    assert_int_equal(mem->block_count, 1);
    muster_view_unref(view);
    muster_view_unref(NULL);

    assert_int_equal(mem->block_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_ordered_chief_first_then_by_name_and_index),
        cmocka_unit_test(find_gives_the_rank_of_a_member_only),
        cmocka_unit_test(digest_does_not_depend_on_the_order_of_input),
        cmocka_unit_test(digest_sees_every_field),
        cmocka_unit_test(verdict_is_found_by_operation),
        cmocka_unit_test(fields_that_are_no_view_are_refused),
        cmocka_unit_test(a_view_without_members_says_that_all_have_left),
        cmocka_unit_test(the_last_reference_frees),
    };

    return cmocka_run_group_tests(tests, view_setup, view_teardown);
}
