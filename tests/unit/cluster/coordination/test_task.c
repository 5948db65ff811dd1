/* Silence in the coordination service: of which tasks it counts, and from when on. */
#include "coordination_scene_play.h"
#include "test_env.h"

#include <string.h>

#include "cluster/coordination/coordination_internal.h"

#define NONE ""

static void silence_counts_while_a_task_is_connected(void **state)
{
    static struct coordination_play plays[] = {
        PLAY("a task that comes back is listened to again", 3, {"all", NONE}, {"after 6000", NONE},
             {"a states 0", "a OK v* 0:100/2 1:101/2 2:102/2"}, {"a register 1", "a OK @77"},
             {"a states 0", "a OK v* 0:100/2 1:101/3 2:102/2"}, {"after 5999999999ns", NONE},
             {"a states 0", "a OK v* 0:100/2 1:101/3 2:102/2"}, {"after 1ns", NONE},
             {"a states 0", "a OK v* 0:100/2 1:101/2 2:102/2"}),
        PLAY("a task that has waited in vain for the others is not connected", 3,
             {"a register 0 5", NONE}, {"b register 2 5", NONE},
             {"c states 0", "c OK v* 0:5/3 1:0/1 2:5/3"},
             {"after 3600000", "a DEADLINE_EXCEEDED *; b DEADLINE_EXCEEDED *"},
             {"c states 0", "c OK v* 0:5/2 1:0/1 2:5/2"}),
        PLAY("all who live are asked, whoever comes first", 3, {"all", NONE},
             {"c alive 2 0,1,2,3", NONE}, {"b alive 1 0,1,2,3", NONE},
             {"a alive 0 0,1,2,3", "c OK *; b OK *; a OK *"}),
    };

    (void)state;
    plays[0].is_recoverable = true;
    coordination_play_all(plays, sizeof(plays) / sizeof(plays[0]));
}

static void on_answer(void *data, struct muster_coordination_ask *ask,
                      const struct muster_coordination_answer *answer)
{
    (void)data;
    (void)ask;
    (void)answer;
    fail_msg("nothing is asked");
}

static void open_service(struct coordination_scene *fixture)
{
    static const struct muster_coordination_ops ops = {.answer = on_answer};
    const struct muster_coordination_options options = {.task_count = 3,
                                                        .heartbeat_timeout_ns = PLAY_BEAT_NS,
                                                        .register_timeout_ns = PLAY_REGISTER_NS,
                                                        .service_incarnation = 7};

    coordination_scene_open(fixture, &options, &ops);
}

/* Only when all have registered before the restart their silence counts at once. */
static void silence_counts_after_a_restart_where_all_had_registered(void **state)
{
    char other[64];
    const struct {
        const char *barrier;
        enum muster_rc rc;
        bool is_counting;
    } rows[] = {
        {muster_coordination_register_barrier, MUSTER_OK, true},
        {muster_coordination_register_barrier, MUSTER_DEADLINE_EXCEEDED, false},
        {other, MUSTER_OK, false},
        {"short", MUSTER_OK, false},
    };
    const struct muster_coordination_task_info task = {.state = MUSTER_TASK_CONNECTED};

    (void)state;
    memset(other, 'x', sizeof(other));
    other[strlen(muster_coordination_register_barrier)] = '\0';
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_bytes id = {rows[i].barrier, strlen(rows[i].barrier)};
        struct coordination_scene fixture;

        open_service(&fixture);
        assert_int_equal(
            muster_coordination_restore_task(fixture.coordination, fixture.now_ns, &task),
            MUSTER_OK);
        assert_int_equal(
            muster_coordination_restore_barrier(fixture.coordination, id, 0, rows[i].rc, NULL),
            MUSTER_OK);

        assert_int_equal(muster_coordination_due_ns(fixture.coordination),
                         rows[i].is_counting ? fixture.now_ns + PLAY_BEAT_NS : UINT64_MAX);
        coordination_scene_close(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest coordination_task[] = {
        cmocka_unit_test(silence_counts_while_a_task_is_connected),
        cmocka_unit_test(silence_counts_after_a_restart_where_all_had_registered),
    };

    return cmocka_run_group_tests(coordination_task, NULL, NULL);
}
