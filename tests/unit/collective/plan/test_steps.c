/* All plans of steps on paper: everything arrives, nothing is left, and bytes are as documented. */
#include "step_paper.h"
#include "test_env.h"

static struct test_env test;

/* --- What must hold --- */

static uint32_t expected_at(const struct paper *paper, const struct paper_member *member,
                            uint64_t i)
{
    const struct muster_plan *plan = &member->plan;

    if (plan->kind == MUSTER_OP_BROADCAST)
        return 1u << plan->root;
    if (plan->kind == MUSTER_OP_ALL_GATHER)
        return 1u << (i / (plan->count / plan->n));
    return (uint32_t)((UINT64_C(1) << paper->n) - 1);
}

static void check_results(const struct paper *paper)
{
    for (uint32_t m = 0; m < paper->n; m++) {
        const struct paper_member *member = &paper->members[m];
        const struct muster_plan *plan = &member->plan;

        assert_int_equal(paper_unfinished(member, paper->chunk_count), paper->chunk_count);
        assert_true(member->staged == 0);
        for (uint64_t i = 0; i < paper->count; i++) {
            if (plan->kind == MUSTER_OP_REDUCE_SCATTER && i / (plan->count / plan->n) != m)
                continue;
            if (plan->kind == MUSTER_OP_BROADCAST && m == plan->root)
                continue; /* its tensor is the result */
            if (plan->kind == MUSTER_OP_REDUCE && m != plan->root)
                continue;
            assert_int_equal(member->work[i], expected_at(paper, member, i));
        }
    }
}

static void check_no_message_is_left(const struct paper *paper)
{
    size_t count = (size_t)paper->n * paper->n * paper->chunk_count * PAPER_MESSAGES_MAX;

    for (size_t i = 0; i < count; i++)
        assert_null(paper->messages[i].sets);
}

/* In an all_reduce a lazy member has never more to keep than `window` chunks bring. */
static void check_staging(const struct paper *paper)
{
    for (uint32_t m = 0; m < paper->n; m++) {
        const struct paper_member *member = &paper->members[m];
        uint64_t largest = 0, incoming = 0;

        for (uint32_t s = 0; s < member->begin[paper->chunk_count]; s++)
            if (member->steps[s].kind == MUSTER_STEP_REDUCE ||
                member->steps[s].kind == MUSTER_STEP_HOLD)
                incoming += member->steps[s].count;
        for (uint32_t c = 0; c < paper->chunk_count; c++) {
            uint64_t sum = 0;

            for (uint32_t s = member->begin[c]; s < member->begin[c + 1]; s++)
                if (member->steps[s].kind == MUSTER_STEP_REDUCE ||
                    member->steps[s].kind == MUSTER_STEP_HOLD)
                    sum += member->steps[s].count;
            largest = sum > largest ? sum : largest;
        }
        assert_true(member->staged_max <= largest * member->plan.window);
        assert_true(member->staged_max <= incoming);
    }
}

struct scene {
    enum muster_algorithm algorithm;
    enum muster_op_kind kind;
    uint32_t n, root, per_host;
    uint64_t count;
};

static struct muster_plan_input input_of(const struct scene *scene)
{
    return (struct muster_plan_input){
        .kind = scene->kind,
        .n = scene->n,
        .root = scene->root,
        .count = scene->count,
        .element_bytes = 4,
        .parameters = {.chunk_bytes = 256, .direct_max_bytes = 1, .forced = scene->algorithm}};
}

static void check_scene(const struct scene *scene)
{
    const struct muster_plan_input input = input_of(scene);
    struct paper paper;

    for (unsigned seed = 0; seed < 4; seed++) {
        paper_open(&paper, test.env.mem, &input, scene->per_host);
        if (paper.members[0].plan.algorithm != MUSTER_ALGORITHM_DIRECT || scene->count > 0)
            paper_run(&paper, seed, seed < 2 ? UINT32_MAX : (uint32_t)scene->count % scene->n);
        check_results(&paper);
        check_no_message_is_left(&paper);
        if (scene->kind == MUSTER_OP_ALL_REDUCE)
            check_staging(&paper);
        paper_close(&paper, test.env.mem);
    }
}

static void check_algorithm(enum muster_algorithm algorithm, enum muster_op_kind kind,
                            uint32_t per_host)
{
    bool has_parts = kind == MUSTER_OP_ALL_GATHER || kind == MUSTER_OP_REDUCE_SCATTER;

    for (uint32_t n = 2; n <= PAPER_MEMBERS_MAX; n++) {
        const uint64_t counts[] = {0, 1, n - 1, n + 1, PAPER_LINE + 1, 97, 1009, 4096};

        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
            check_scene(&(struct scene){.algorithm = algorithm,
                                        .kind = kind,
                                        .n = n,
                                        .root = (uint32_t)counts[i] % n,
                                        .per_host = per_host,
                                        .count = has_parts ? counts[i] % 200 * n : counts[i]});
    }
}

static void direct_reaches_everybody(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= PAPER_MEMBERS_MAX; n++)
        for (uint64_t count = 0; count < 40; count += 13) {
            struct scene scene = {MUSTER_ALGORITHM_AUTO, MUSTER_OP_ALL_REDUCE, n, 0, 1, count};
            struct muster_plan_input input = input_of(&scene);
            struct paper paper;

            input.parameters.direct_max_bytes = 1 << 20;
            paper_open(&paper, test.env.mem, &input, 1);
            assert_int_equal(paper.members[0].plan.algorithm, MUSTER_ALGORITHM_DIRECT);
            paper_run(&paper, (unsigned)n, UINT32_MAX);
            check_results(&paper);
            check_no_message_is_left(&paper);
            paper_close(&paper, test.env.mem);
        }
}

static void ring_reaches_everybody(void **state)
{
    (void)state;
    check_algorithm(MUSTER_ALGORITHM_RING, MUSTER_OP_ALL_REDUCE, 1);
    check_algorithm(MUSTER_ALGORITHM_RING, MUSTER_OP_BROADCAST, 1);
}

static void halving_reaches_everybody(void **state)
{
    (void)state;
    check_algorithm(MUSTER_ALGORITHM_HALVING, MUSTER_OP_ALL_REDUCE, 1);
}

static void double_tree_reaches_everybody(void **state)
{
    (void)state;
    check_algorithm(MUSTER_ALGORITHM_DOUBLE_TREE, MUSTER_OP_ALL_REDUCE, 1);
    check_algorithm(MUSTER_ALGORITHM_DOUBLE_TREE, MUSTER_OP_BROADCAST, 1);
    check_algorithm(MUSTER_ALGORITHM_DOUBLE_TREE, MUSTER_OP_REDUCE, 1);
}

static void blocks_reach_everybody(void **state)
{
    (void)state;
    check_algorithm(MUSTER_ALGORITHM_BLOCKS, MUSTER_OP_ALL_REDUCE, 1);
    check_algorithm(MUSTER_ALGORITHM_BLOCKS, MUSTER_OP_ALL_GATHER, 1);
    check_algorithm(MUSTER_ALGORITHM_BLOCKS, MUSTER_OP_REDUCE_SCATTER, 1);
    check_algorithm(MUSTER_ALGORITHM_BLOCKS, MUSTER_OP_REDUCE, 1);
}

/* Also with a host that has fewer members than the others, and with one host for all. */
static void two_levels_reach_everybody(void **state)
{
    (void)state;
    for (uint32_t per_host = 1; per_host <= 5; per_host++)
        check_algorithm(MUSTER_ALGORITHM_TWO_LEVEL, MUSTER_OP_ALL_REDUCE, per_host);
    check_algorithm(MUSTER_ALGORITHM_TWO_LEVEL, MUSTER_OP_ALL_REDUCE, PAPER_MEMBERS_MAX);
}

/* --- Bytes --- */

static double halving_bytes(uint32_t n, uint32_t position, double whole)
{
    uint32_t core = 1, extra;

    while (core * 2 <= n)
        core *= 2;
    extra = n - core;
    if (position < 2 * extra && position % 2 == 0)
        return whole;
    return 2 * (core - 1.0) / core * whole + (position < 2 * extra ? whole : 0);
}

static double two_level_bytes(const struct muster_topology *topology, uint32_t index, double whole)
{
    uint32_t host = topology->host_of[index], leaders = topology->leader_count;
    double block = whole / leaders;

    if (topology->local_of[index] >= leaders)
        return whole;
    return (leaders - 1) * block + halving_bytes(topology->host_count, host, block) +
           (muster_topology_locals(topology, host) - 1) * block;
}

/* As collective/plan/steps.h says. */
static double formula_bytes(const struct paper *paper, uint32_t index)
{
    double n = paper->n, whole = (double)paper->count;

    switch (paper->members[index].plan.algorithm) {
    case MUSTER_ALGORITHM_RING:
        return 2 * (n - 1) / n * whole;
    case MUSTER_ALGORITHM_HALVING:
        return halving_bytes(paper->n, index, whole);
    case MUSTER_ALGORITHM_BLOCKS:
        return 2 * (n - 1) / n * whole;
    case MUSTER_ALGORITHM_TWO_LEVEL:
        return two_level_bytes(&paper->topology, index, whole);
    default:
        return (n - 1) * whole;
    }
}

static void check_bytes(enum muster_algorithm algorithm, uint32_t n, uint32_t per_host)
{
    const struct scene scene = {algorithm, MUSTER_OP_ALL_REDUCE, n, 0, per_host, 20011};
    const struct muster_plan_input input = input_of(&scene);
    struct paper paper;

    paper_open(&paper, test.env.mem, &input, per_host);
    paper_run(&paper, 0, UINT32_MAX);
    for (uint32_t i = 0; i < n; i++) {
        const struct paper_member *member = &paper.members[i];
        double difference = (double)member->sent - formula_bytes(&paper, i);
        double slack = (double)PAPER_LINE * (double)member->messages_sent;

        if (difference > slack || difference < -slack)
            fail_msg("%s, n %u: member %u sends %llu of %.0f",
                     muster_algorithm_name(member->plan.algorithm), n, i,
                     (unsigned long long)member->sent, formula_bytes(&paper, i));
    }
    paper_close(&paper, test.env.mem);
}

static void bytes_per_member_are_as_documented(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= PAPER_MEMBERS_MAX; n++) {
        check_bytes(MUSTER_ALGORITHM_RING, n, 1);
        check_bytes(MUSTER_ALGORITHM_HALVING, n, 1);
        check_bytes(MUSTER_ALGORITHM_BLOCKS, n, 1);
        for (uint32_t per_host = 1; per_host <= 5; per_host++)
            check_bytes(MUSTER_ALGORITHM_TWO_LEVEL, n, per_host);
    }
}

/* Nobody passes on in both trees, so nobody sends more than twice the tensor, and the root no more
 * than once. */
static void nobody_sends_more_than_twice_in_the_double_tree(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= PAPER_MEMBERS_MAX; n++) {
        const struct scene scene = {
            MUSTER_ALGORITHM_DOUBLE_TREE, MUSTER_OP_ALL_REDUCE, n, 0, 1, 64 * 64};
        const struct muster_plan_input input = input_of(&scene);
        struct paper paper;

        paper_open(&paper, test.env.mem, &input, 1);
        paper_run(&paper, 0, UINT32_MAX);
        assert_int_equal(paper.chunk_count % 2, 0);
        assert_true(paper.members[0].sent == paper.count);
        for (uint32_t i = 0; i < n; i++)
            assert_true(paper.members[i].sent <= 2 * paper.count);
        paper_close(&paper, test.env.mem);
    }
}

/* The order of a sum is the order of its steps: of the members. */
static void owners_hold_the_inputs_in_the_order_of_the_members(void **state)
{
    const struct scene scene = {MUSTER_ALGORITHM_BLOCKS, MUSTER_OP_ALL_REDUCE, 7, 0, 1, 997};
    const struct muster_plan_input input = input_of(&scene);
    struct paper paper;

    (void)state;
    paper_open(&paper, test.env.mem, &input, 1);
    for (uint32_t i = 0; i < 7; i++) {
        const struct paper_member *member = &paper.members[i];

        for (uint32_t c = 0; c < paper.chunk_count; c++) {
            int64_t last = -1;

            for (uint32_t s = member->begin[c]; s < member->begin[c + 1]; s++) {
                if (member->steps[s].kind != MUSTER_STEP_HOLD)
                    continue;
                assert_true((int64_t)member->steps[s].peer > last);
                last = member->steps[s].peer;
            }
        }
    }
    paper_close(&paper, test.env.mem);
}

/* The program's own elements may be longer than a cache line. */
static void long_elements_are_cut_between_elements(void **state)
{
    struct muster_plan_input input = {.kind = MUSTER_OP_ALL_REDUCE,
                                      .n = 5,
                                      .count = 123,
                                      .element_bytes = 100,
                                      .parameters = {.chunk_bytes = 256, .direct_max_bytes = 1}};

    (void)state;
    for (int a = MUSTER_ALGORITHM_HALVING; a <= MUSTER_ALGORITHM_TWO_LEVEL; a++) {
        struct paper paper;

        input.parameters.forced = (enum muster_algorithm)a;
        paper_open(&paper, test.env.mem, &input, 2);
        paper_run(&paper, 1, UINT32_MAX);
        check_results(&paper);
        paper_close(&paper, test.env.mem);
    }
}

static void messages_of_one_number_do_not_meet(void **state)
{
    const struct scene scene = {MUSTER_ALGORITHM_TWO_LEVEL, MUSTER_OP_ALL_REDUCE, 13, 0, 3, 4096};
    const struct muster_plan_input input = input_of(&scene);
    struct paper paper;

    (void)state;
    paper_open(&paper, test.env.mem, &input, 3);
    for (uint32_t i = 0; i < 13; i++) {
        const struct paper_member *member = &paper.members[i];

        for (uint32_t s = 0; s < member->begin[1]; s++)
            for (uint32_t t = 0; t < s; t++) {
                const struct muster_step *a = &member->steps[s], *b = &member->steps[t];
                bool are_sent = a->kind == MUSTER_STEP_SEND && b->kind == MUSTER_STEP_SEND;

                assert_false(are_sent && a->peer == b->peer && a->message == b->message);
            }
    }
    paper_close(&paper, test.env.mem);
}

static int paper_setup(void **state)
{
    (void)state;
    test_env_open(&test);
    return 0;
}

static int paper_teardown(void **state)
{
    (void)state;
    test_env_close(&test);
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, paper_setup, paper_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(direct_reaches_everybody),
        CASE(ring_reaches_everybody),
        CASE(halving_reaches_everybody),
        CASE(double_tree_reaches_everybody),
        CASE(blocks_reach_everybody),
        CASE(two_levels_reach_everybody),
        CASE(bytes_per_member_are_as_documented),
        CASE(nobody_sends_more_than_twice_in_the_double_tree),
        CASE(owners_hold_the_inputs_in_the_order_of_the_members),
        CASE(long_elements_are_cut_between_elements),
        CASE(messages_of_one_number_do_not_meet),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
