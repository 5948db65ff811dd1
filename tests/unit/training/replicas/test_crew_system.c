/* A crew: every hand works, all meet or are told why not, and nobody waits for ever. */
#include "assertion_count.h"
#include "test_env.h"
#include "thread_refusal.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "training/replicas/crew_system.h"

enum { HANDS = 5 };

/** The case has its hands do this. */
struct scene {
    atomic_uint worked, acts;
    uint32_t odd_one; /* that does something else, or HANDS */
    enum muster_rc rc[HANDS];
    struct muster_error errors[HANDS];
    unsigned sums[HANDS];
};

static enum muster_rc run_crew(struct scene *scene, uint32_t count, muster_crew_fn *work,
                               uint32_t *ret_hand)
{
    struct muster_crew *crew = NULL;
    enum muster_rc rc = muster_crew_open(muster_mem_system(), count, &crew);

    assert_int_equal(rc, MUSTER_OK);
    rc = muster_crew_run(crew, work, scene, ret_hand);
    muster_crew_close(crew);
    return rc;
}

static enum muster_rc add_brought(void *data, void *const *brought)
{
    struct scene *scene = data;
    unsigned sum = 0;

    atomic_fetch_add(&scene->acts, 1);
    for (unsigned i = 0; i < HANDS; i++)
        sum = sum * 10 + *(unsigned *)brought[i];
    for (unsigned i = 0; i < HANDS; i++)
        *(unsigned *)brought[i] = sum;
    return MUSTER_OK;
}

static enum muster_rc meet_others(struct muster_crew *crew, uint32_t hand, struct scene *scene,
                                  const char *what, unsigned *brought)
{
    scene->rc[hand] =
        muster_crew_meet(crew, hand, what, brought, add_brought, scene, &scene->errors[hand]);
    return scene->rc[hand];
}

static enum muster_rc meet_often(struct muster_crew *crew, uint32_t hand, void *data)
{
    struct scene *scene = data;

    atomic_fetch_add(&scene->worked, 1);
    for (unsigned i = 0; i < 200; i++) {
        scene->sums[hand] = hand + 1;
        if (meet_others(crew, hand, scene, "add", &scene->sums[hand]) != MUSTER_OK ||
            scene->sums[hand] != 12345)
            return MUSTER_INTERNAL;
    }
    return MUSTER_OK;
}

static void one_hand_acts_for_all_at_each_meeting(void **state)
{
    struct scene scene = {.odd_one = HANDS};
    uint32_t hand = 9;

    (void)state;
    assert_int_equal(run_crew(&scene, HANDS, meet_often, &hand), MUSTER_OK);
    assert_int_equal(scene.worked, HANDS);
    assert_int_equal(scene.acts, 200);
}

static enum muster_rc meet_for_two_things(struct muster_crew *crew, uint32_t hand, void *data)
{
    struct scene *scene = data;
    unsigned own = hand + 1;

    if (meet_others(crew, hand, scene, hand == scene->odd_one ? "gather" : "add", &own) !=
        MUSTER_INVALID_ARGUMENT)
        return MUSTER_INTERNAL;
    return meet_others(crew, hand, scene, "add", &own);
}

static void hands_that_want_other_things_are_both_told(void **state)
{
    (void)state;
    for (uint32_t odd_one = 0; odd_one < HANDS; odd_one++) {
        struct scene scene = {.odd_one = odd_one};
        uint32_t hand;

        assert_int_equal(run_crew(&scene, HANDS, meet_for_two_things, &hand), MUSTER_OK);
        assert_int_equal(scene.acts, 1); /* the second meeting */
        for (unsigned i = 0; i < HANDS; i++)
            assert_string_equal(scene.errors[i].text,
                                odd_one == 0
                                    ? "replica 0 of this member calls gather, replica 1 add"
                                    : scene.errors[0].text);
        if (odd_one == 3)
            assert_string_equal(scene.errors[1].text,
                                "replica 0 of this member calls add, replica 3 gather");
    }
}

static enum muster_rc meet_without_one(struct muster_crew *crew, uint32_t hand, void *data)
{
    struct scene *scene = data;
    unsigned own = 0;

    if (hand == scene->odd_one)
        return MUSTER_OUT_OF_RANGE;
    return meet_others(crew, hand, scene, "add", &own);
}

static void hands_do_not_wait_for_one_that_has_returned(void **state)
{
    (void)state;
    for (uint32_t odd_one = 0; odd_one < HANDS; odd_one++) {
        struct scene scene = {.odd_one = odd_one};
        uint32_t hand = 9;
        enum muster_rc rc = run_crew(&scene, HANDS, meet_without_one, &hand);

        assert_int_equal(rc, odd_one == 0 ? MUSTER_OUT_OF_RANGE : MUSTER_FAILED_PRECONDITION);
        assert_int_equal(hand, 0);
        assert_int_equal(scene.acts, 0);
        for (unsigned i = 0; i < HANDS; i++) {
            if (i == odd_one)
                continue;
            assert_int_equal(scene.rc[i], MUSTER_FAILED_PRECONDITION);
            /* not always the odd one: another that was sent away may have returned, too */
            fail_if(strstr(scene.errors[i].text, "has returned") == NULL, "%s",
                    scene.errors[i].text);
        }
    }
}

static enum muster_rc fail_some(struct muster_crew *crew, uint32_t hand, void *data)
{
    (void)crew;
    (void)data;
    return hand == 2 ? MUSTER_DATA_LOSS : hand == 4 ? MUSTER_ABORTED : MUSTER_OK;
}

static void the_first_failure_is_the_crews(void **state)
{
    struct scene scene = {.odd_one = HANDS};
    uint32_t hand = 9;

    (void)state;
    assert_int_equal(run_crew(&scene, HANDS, fail_some, &hand), MUSTER_DATA_LOSS);
    assert_int_equal(hand, 2);
}

static enum muster_rc act_alone(void *data, void *const *brought)
{
    (void)data;
    *(unsigned *)brought[0] += 5;
    return MUSTER_ABORTED;
}

static enum muster_rc meet_alone(struct muster_crew *crew, uint32_t hand, void *data)
{
    struct scene *scene = data;

    return muster_crew_meet(crew, hand, "add", &scene->sums[0], act_alone, scene,
                            &scene->errors[0]);
}

static void a_crew_of_one_meets_itself(void **state)
{
    struct scene scene = {.odd_one = HANDS};
    uint32_t hand = 9;

    (void)state;
    assert_int_equal(run_crew(&scene, 1, meet_alone, &hand), MUSTER_ABORTED);
    assert_int_equal(scene.sums[0], 5);
    assert_int_equal(scene.errors[0].rc, MUSTER_OK); /* the act's error is the act's to tell */
}

static void without_memory_nothing_runs(void **state)
{
    struct muster_crew *crew = NULL;
    struct muster_mem_limited mem;

    (void)state;
    muster_mem_limited_init(&mem, muster_mem_system(), 0);
    for (unsigned i = 1; i <= 3; i++) {
        mem.fail_at = i;
        assert_int_equal(muster_crew_open(&mem.mem, HANDS, &crew), MUSTER_RESOURCE_EXHAUSTED);
        assert_int_equal(mem.block_count, 0);
    }
    muster_crew_close(NULL);
}

static enum muster_rc note_thread(struct muster_crew *crew, uint32_t hand, void *data)
{
    (void)crew;
    ((pid_t *)data)[hand] = gettid();
    return MUSTER_OK;
}

static void threads_last_from_run_to_run(void **state)
{
    pid_t first[HANDS] = {0}, later[HANDS] = {0};
    struct muster_crew *crew = NULL;
    uint32_t hand;

    (void)state;
    assert_int_equal(muster_crew_open(muster_mem_system(), HANDS, &crew), MUSTER_OK);
    assert_int_equal(muster_crew_run(crew, note_thread, first, &hand), MUSTER_OK);
    for (unsigned run = 0; run < 100; run++) {
        memset(later, 0, sizeof(later));
        assert_int_equal(muster_crew_run(crew, note_thread, later, &hand), MUSTER_OK);
        assert_memory_equal(later, first, sizeof(first));
    }
    assert_int_equal(first[0], gettid());
    for (unsigned i = 1; i < HANDS; i++)
        assert_int_not_equal(first[i], first[i - 1]);
    muster_crew_close(crew);
}

/* A meeting that was called off leaves nothing for the next run. */
static void a_run_behind_one_that_was_called_off_is_whole(void **state)
{
    struct scene broken = {.odd_one = 2}, whole = {.odd_one = HANDS};
    struct muster_crew *crew = NULL;
    uint32_t hand;

    (void)state;
    assert_int_equal(muster_crew_open(muster_mem_system(), HANDS, &crew), MUSTER_OK);
    for (unsigned i = 0; i < 20; i++)
        assert_int_not_equal(muster_crew_run(crew, meet_without_one, &broken, &hand), MUSTER_OK);
    assert_int_equal(muster_crew_run(crew, meet_often, &whole, &hand), MUSTER_OK);
    assert_int_equal(whole.acts, 200);
    muster_crew_close(crew);
}

static enum muster_rc run_within(struct muster_crew *crew, uint32_t hand, void *data)
{
    uint32_t other;

    (void)hand;
    return muster_crew_run(crew, meet_often, data, &other);
}

static void a_run_within_a_run_is_refused(void **state)
{
    struct scene scene = {.odd_one = HANDS};
    uint32_t hand = 9;

    (void)state;
    assert_int_equal(run_crew(&scene, HANDS, run_within, &hand), MUSTER_FAILED_PRECONDITION);
    assert_int_equal(scene.worked, 0);
}

static void without_threads_nothing_runs_until_there_are_some(void **state)
{
    struct scene scene = {.odd_one = HANDS};
    struct muster_crew *crew = NULL;
    uint32_t hand;

    (void)state;
    assert_int_equal(muster_crew_open(muster_mem_system(), HANDS, &crew), MUSTER_OK);
    test_threads_left = 2;
    assert_int_equal(muster_crew_run(crew, meet_often, &scene, &hand), MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(scene.worked, 0);
    test_threads_left = UINT32_MAX;
    assert_int_equal(muster_crew_run(crew, meet_often, &scene, &hand), MUSTER_OK);
    assert_int_equal(scene.worked, HANDS);
    muster_crew_close(crew);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(one_hand_acts_for_all_at_each_meeting),
        cmocka_unit_test(hands_that_want_other_things_are_both_told),
        cmocka_unit_test(hands_do_not_wait_for_one_that_has_returned),
        cmocka_unit_test(the_first_failure_is_the_crews),
        cmocka_unit_test(a_crew_of_one_meets_itself),
        cmocka_unit_test(without_memory_nothing_runs),
        cmocka_unit_test(threads_last_from_run_to_run),
        cmocka_unit_test(a_run_behind_one_that_was_called_off_is_whole),
        cmocka_unit_test(a_run_within_a_run_is_refused),
        cmocka_unit_test(without_threads_nothing_runs_until_there_are_some),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
