/* Control messages, members, views and progress vectors survive the wire; strangers' bytes do not
 * get in. */
#include "careful_mem.h"
#include "test_env.h"

#include <string.h>

#include "cluster/membership/control_proto.h"
#include "cluster/membership/progress_proto.h"
#include "collective/view/view_proto.h"
#include "proto/membership.pb-c.h"

static struct muster_mem_limited limited;
static struct muster_mem *const mem = &limited.mem;

TEST_SET_UP(set_up, muster_mem_limited_init(&limited, careful_mem(), 0))
TEST_SET_UP(tear_down, assert_int_equal(muster_mem_limited_fini(&limited), 0))
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static struct muster_member make_member(uint32_t task)
{
    struct muster_member one = {.task_type = "worker", .host_key = "host-a", .task_index = task};

    one.incarnation.bytes[3] = (uint8_t)(task + 1);
    one.pid = 4711 + task;
    one.from_step = 3;
    assert_int_equal(muster_address_parse("[fe80::1%3]:80", &one.address, NULL), MUSTER_OK);
    return one;
}

static struct muster_view *make_view(void)
{
    struct muster_chunk_source sources[] = {{0, 2, 1}, {2, 6, 0}};
    struct muster_verdict verdicts[] = {
        {.op = {7, 0, 1}, .descriptor = UINT64_MAX, .kind = MUSTER_VERDICT_ADOPT},
        {.op = {7, 0, 2}, .kind = MUSTER_VERDICT_RETRY},
        {.op = {7, 1, 0}, .kind = MUSTER_VERDICT_ABORTED},
    };
    struct muster_member members[] = {make_member(0), make_member(1)};
    struct muster_view fields = {.job = "job", .epoch = 9, .reason = "worker:2 lost (SIGKILL)"};
    struct muster_view *view = NULL;

    verdicts[0].chunk_count = 8;
    verdicts[0].sources = sources;
    verdicts[0].source_count = 2;
    fields.plan.chunk_bytes = 1 << 18;
    fields.plan.direct_max_bytes = 1 << 16;
    fields.plan.forced = MUSTER_ALGORITHM_HALVING;
    fields.plan.is_reproducible = true;
    fields.plan.row_count = 2;
    fields.plan.rows[0] = (struct muster_plan_row){.kind = MUSTER_PLAN_KIND_ANY,
                                                   .wire = MUSTER_WIRE_SHM,
                                                   .span = MUSTER_SPAN_HOSTS,
                                                   .algorithm = MUSTER_ALGORITHM_BLOCKS,
                                                   .n_min = 3,
                                                   .bytes_max = UINT64_C(1) << 40};
    fields.plan.rows[1].algorithm = MUSTER_ALGORITHM_RING;
    fields.members = members;
    fields.member_count = 2;
    fields.verdicts = verdicts;
    fields.verdict_count = 3;
    fields.is_below_min = true;
    fields.is_done = true;
    fields.done_step = 77;
    fields.done_calls = 5;
    (void)snprintf(fields.done_by, sizeof(fields.done_by), "worker:7");
    fields.begun_step = 81;
    fields.begin_epoch = 4;
    fields.is_fixed_size = true;
    fields.is_stopping = true;
    fields.stop_step = 80;
    fields.is_state_lost = true;
    assert_int_equal(muster_view_new(mem, &fields, &view), MUSTER_OK);
    return view;
}

static struct muster_control round_trip(const struct muster_control *control)
{
    struct muster_control back;
    void *bytes;
    size_t size;

    assert_int_equal(muster_control_pack(control, mem, &bytes, &size), MUSTER_OK);
    assert_int_equal(muster_control_unpack(mem, bytes, size, &back), MUSTER_OK);
    assert_int_equal(back.kind, control->kind);
    muster_mem_free(mem, bytes);
    return back;
}

/* A view on its way over the wire. */
static enum muster_rc send_view(const struct muster_view *view, struct muster_view **ret_back)
{
    enum muster_rc rc;
    void *bytes;
    size_t size;

    assert_int_equal(muster_view_pack(view, mem, &bytes, &size), MUSTER_OK);
    rc = muster_view_unpack(mem, bytes, size, ret_back);
    muster_mem_free(mem, bytes);
    return rc;
}

static void a_view_comes_back_with_its_digest(void **state)
{
    struct muster_view *view = make_view(), *back;

    (void)state;
    assert_int_equal(send_view(view, &back), MUSTER_OK);

    assert_int_equal(back->digest, view->digest);
    assert_int_equal(back->verdicts[0].sources[1].count, 6);
    assert_int_equal(back->members[1].pid, 4712);
    assert_true(back->is_below_min);
    assert_true(back->is_done && back->done_step == 77 && back->done_calls == 5);
    assert_int_equal(back->begun_step, 81);
    assert_int_equal(back->begin_epoch, 4);
    assert_true(back->is_fixed_size);
    assert_true(back->is_stopping && back->stop_step == 80);
    assert_true(back->is_state_lost);
    assert_string_equal(back->reason, view->reason);
    assert_string_equal(back->done_by, "worker:7");
    muster_view_unref(back);
    muster_view_unref(view);
}

static void an_empty_view_is_a_view(void **state)
{
    struct muster_view fields = {.job = "job", .epoch = 2}, *view, *back;

    (void)state;
    assert_int_equal(muster_view_new(mem, &fields, &view), MUSTER_OK);
    assert_int_equal(send_view(view, &back), MUSTER_OK);

    assert_int_equal(back->member_count, 0);
    muster_view_unref(back);
    muster_view_unref(view);
}

/* Every cut and every flipped byte gives an error or a valid view, never a crash or a leak. */
static void damaged_views_are_refused_or_whole(void **state)
{
    struct muster_view *view = make_view(), *back;
    uint8_t *bytes;
    void *packed;
    size_t size;

    (void)state;
    assert_int_equal(muster_view_pack(view, mem, &packed, &size), MUSTER_OK);
    bytes = packed;
    for (size_t at = 0; at < size; at++) {
        if (muster_view_unpack(mem, bytes, at, &back) == MUSTER_OK)
            muster_view_unref(back);
        for (unsigned bit = 0; bit < 8; bit++) {
            bytes[at] ^= (uint8_t)(1u << bit);
            if (muster_view_unpack(mem, bytes, size, &back) == MUSTER_OK)
                muster_view_unref(back);
            bytes[at] ^= (uint8_t)(1u << bit);
        }
    }
    muster_mem_free(mem, packed);
    muster_view_unref(view);
}

static void a_source_outside_the_view_is_refused(void **state)
{
    struct muster_view *view = make_view(), *back;

    (void)state;
    view->verdicts[0].sources[0].rank = 2; /* as a peer could have packed it */

    assert_int_equal(send_view(view, &back), MUSTER_INVALID_ARGUMENT);
    muster_view_unref(view);
}

static void members_out_of_order_are_refused(void **state)
{
    struct muster_view *view = make_view(), *back;
    struct muster_member first = view->members[0];

    (void)state;
    view->members[0] = view->members[1];
    view->members[1] = first;

    assert_int_equal(send_view(view, &back), MUSTER_INVALID_ARGUMENT);
    muster_view_unref(view);
}

static void a_member_comes_back(void **state)
{
    struct muster_member one = make_member(5), back;
    void *bytes;
    size_t size;

    (void)state;
    assert_int_equal(muster_member_pack(&one, mem, &bytes, &size), MUSTER_OK);
    assert_int_equal(muster_member_unpack(mem, bytes, size, &back), MUSTER_OK);

    assert_true(muster_address_is_equal(&one.address, &back.address));
    assert_string_equal(back.host_key, "host-a");
    assert_int_equal(back.from_step, 3);
    muster_mem_free(mem, bytes);
}

/* Strangers choose how long a text is; a member has room for so many bytes with the end. */
static void a_text_that_does_not_fit_into_a_member_is_refused(void **state)
{
    struct muster_member one = make_member(5), back;
    const size_t rooms[] = {sizeof(one.task_type), sizeof(one.host_key)};
    Muster__Member *message;
    uint8_t bytes[1024];
    char text[512];
    void *packed;
    size_t size;

    (void)state;
    assert_int_equal(muster_member_pack(&one, mem, &packed, &size), MUSTER_OK);
    message = muster__member__unpack(NULL, size, packed);
    muster_mem_free(mem, packed);
    assert_non_null(message);
    for (size_t i = 0; i < 4; i++) {
        size_t room = rooms[i % 2];
        char **field = i % 2 == 0 ? &message->task_type : &message->host_key, *kept = *field;

        memset(text, 'x', sizeof(text));
        assert_true(room < sizeof(text));
        text[i < 2 ? room - 1 : room] = '\0';
        *field = text;
        size = muster__member__get_packed_size(message);
        assert_true(size <= sizeof(bytes));
        assert_int_equal(muster__member__pack(message, bytes), size);
        *field = kept;

        assert_int_equal(muster_member_unpack(mem, bytes, size, &back),
                         i < 2 ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
    }
    muster__member__free_unpacked(message, NULL);
}

static enum muster_rc pack_and_unpack(const struct muster_member_record *record,
                                      struct muster_member_record *ret_back)
{
    enum muster_rc rc;
    void *bytes;
    size_t size;

    assert_int_equal(muster_member_record_pack(record, mem, &bytes, &size), MUSTER_OK);
    rc = muster_member_record_unpack(mem, bytes, size, ret_back);
    muster_mem_free(mem, bytes);
    return rc;
}

static void a_record_comes_back_with_what_it_asks_for(void **state)
{
    struct muster_member_record back, record = {.member = make_member(5),
                                                .begins_after = 9,
                                                .communication = {MUSTER_COMMUNICATION_RING, 7, 8},
                                                .is_reproducible = true,
                                                .data_protection = MUSTER_DATA_AUTHENTICATED,
                                                .is_fixed_size = true};

    (void)state;
    assert_int_equal(pack_and_unpack(&record, &back), MUSTER_OK);

    assert_int_equal(back.begins_after, 9);
    assert_int_equal(back.communication.implementation, MUSTER_COMMUNICATION_RING);
    assert_int_equal(back.communication.bytes_per_pack, 7);
    assert_int_equal(back.communication.timeout_ns, 8);
    assert_true(back.is_reproducible);
    assert_int_equal(back.data_protection, MUSTER_DATA_AUTHENTICATED);
    assert_true(back.is_fixed_size);
}

/* Nobody could make a view of it. */
static void a_record_that_asks_for_what_does_not_exist_is_refused(void **state)
{
    struct muster_member_record back, record = {.member = make_member(5)};

    (void)state;
    record.communication.implementation = MUSTER_COMMUNICATION_NCCL + 1;
    assert_int_equal(pack_and_unpack(&record, &back), MUSTER_INVALID_ARGUMENT);
    record.communication.implementation = MUSTER_COMMUNICATION_AUTO;
    record.data_protection = MUSTER_DATA_AUTHENTICATED + 1;
    assert_int_equal(pack_and_unpack(&record, &back), MUSTER_INVALID_ARGUMENT);
}

static void a_progress_vector_comes_back(void **state)
{
    uint8_t bitmap[2] = {0x81, 0x02};
    struct muster_progress_op op = {.id = {4, 1, 2}, .descriptor = 77, .chunk_count = 10};
    struct muster_progress_lane lanes[2] = {{.has_issued = true, .issued_through = {4, 0, 1}},
                                            {.has_stable = true, .stable_through = {3, 1, 9}}};
    struct muster_progress vector = {.mem = mem, .epoch = 6, .begun_step = 4, .op_count = 1};
    struct muster_control control = {.kind = MUSTER_CONTROL_PROGRESS, .change_id = 12}, back;

    (void)state;
    op.kind = MUSTER_OP_BROADCAST;
    op.phase = MUSTER_PHASE_GATHER;
    op.has_inputs = true;
    op.root.bytes[0] = 1;
    op.chunks_final = bitmap;
    vector.lanes = lanes;
    vector.lane_count = 2;
    vector.lacks_state = true;
    vector.ops = &op;
    control.progress = &vector;

    back = round_trip(&control);

    assert_int_equal(back.change_id, 12);
    assert_int_equal(back.progress->epoch, 6);
    assert_true(back.progress->lacks_state);
    assert_true(back.progress->lanes[0].has_issued && !back.progress->lanes[0].has_stable);
    assert_int_equal(back.progress->lanes[1].stable_through.sequence, 9);
    assert_int_equal(back.progress->ops[0].kind, MUSTER_OP_BROADCAST);
    assert_memory_equal(back.progress->ops[0].chunks_final, bitmap, 2);
    assert_int_equal(back.progress->ops[0].root.bytes[0], 1);
    muster_control_fini(&back);
}

static void every_small_message_comes_back(void **state)
{
    struct muster_control control = {.epoch = 8, .change_id = 3, .revision = 55}, back;

    (void)state;
    control.is_ready = control.is_confirmed = control.is_resigning = control.is_done = true;
    control.committed_step = 44;
    control.done_calls = 6;
    control.op = (struct muster_op_id){2, 3, 4};
    control.reason = MUSTER_DEADLINE_EXCEEDED;
    control.view_digest = UINT64_MAX;
    control.state = MUSTER_HEARTBEAT_WAITING;
    control.waiting_rank = 2;
    control.member = make_member(1);
    control.accused.bytes[15] = 9;
    strcpy(control.text, "reset");
    control.view = make_view();
    for (int kind = MUSTER_CONTROL_FREEZE; kind <= MUSTER_CONTROL_SUSPECT; kind++) {
        if (kind == MUSTER_CONTROL_PROGRESS)
            continue;
        control.kind = (enum muster_control_kind)kind;
        back = round_trip(&control);
        if (kind != MUSTER_CONTROL_COMMIT)
            assert_int_equal(back.epoch, 8);
        if (kind == MUSTER_CONTROL_COMMIT)
            assert_true(back.view->digest == control.view->digest && back.revision == 55);
        if (kind == MUSTER_CONTROL_JOIN)
            assert_true(back.is_ready && back.committed_step == 44 && back.member.pid == 4712);
        if (kind == MUSTER_CONTROL_SUSPECT)
            assert_true(back.is_confirmed && back.accused.bytes[15] == 9 &&
                        strcmp(back.text, "reset") == 0);
        if (kind == MUSTER_CONTROL_HEARTBEAT)
            assert_true(back.view_digest == UINT64_MAX && back.waiting_rank == 2);
        if (kind == MUSTER_CONTROL_LEAVE)
            assert_true(back.is_resigning && back.is_done && back.committed_step == 44 &&
                        back.done_calls == 6);
        if (kind == MUSTER_CONTROL_ABORT_PROPOSE)
            assert_true(back.op.sequence == 4 && back.reason == MUSTER_DEADLINE_EXCEEDED);
        muster_control_fini(&back);
    }
    muster_view_unref(control.view);
}

static void bytes_of_strangers_are_no_control_message(void **state)
{
    struct muster_rng_seeded rng;
    struct muster_control control;

    (void)state;
    muster_rng_seeded_init(&rng, 1);
    assert_int_equal(muster_control_unpack(mem, "", 0, &control), MUSTER_INVALID_ARGUMENT);
    for (unsigned i = 0; i < 5000; i++) {
        uint8_t bytes[40];
        size_t size = (size_t)muster_rng_below(&rng.rng, sizeof(bytes));

        muster_rng_fill(&rng.rng, bytes, size);
        if (muster_control_unpack(mem, bytes, size, &control) == MUSTER_OK)
            muster_control_fini(&control);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_view_comes_back_with_its_digest),
        CASE(an_empty_view_is_a_view),
        CASE(damaged_views_are_refused_or_whole),
        CASE(a_source_outside_the_view_is_refused),
        CASE(members_out_of_order_are_refused),
        CASE(a_member_comes_back),
        CASE(a_text_that_does_not_fit_into_a_member_is_refused),
        CASE(a_record_comes_back_with_what_it_asks_for),
        CASE(a_record_that_asks_for_what_does_not_exist_is_refused),
        CASE(a_progress_vector_comes_back),
        CASE(every_small_message_comes_back),
        CASE(bytes_of_strangers_are_no_control_message),
    };

    return cmocka_run_group_tests_name("control_proto", tests, NULL, NULL);
}
