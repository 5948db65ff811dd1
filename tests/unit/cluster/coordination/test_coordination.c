/* The coordination service's meaning: registration, heartbeats, errors, barriers, who lives. */
#include "coordination_scene_play.h"
#include "test_env.h"

#define NONE ""

/* --- Registration --- */

static void registration_is_answered_as_tasks_come(void **state)
{
    static const struct coordination_play plays[] = {
        PLAY("registration waits for all", 2, {"a register 0", NONE}, {"due", "3600000"},
             {"b register 1", "a OK @77; b OK @77"}),
        PLAY("a task that waits for the others need not beat", 2, {"a register 0", NONE},
             {"after 60000", NONE}, {"b register 1", "a OK @77; b OK @77"}, {"c poll 1", NONE},
             {"after 5999999999ns", NONE}),
        PLAY("a task may restart before all are there", 2, {"a register 0", NONE}, {"a drop", NONE},
             {"b register 0 200", NONE}, {"c register 1", "b OK @77; c OK @77"}),
        PLAY("unknown tasks are refused", 2,
             {"a register 9 1", "a INVALID_ARGUMENT <E> Unexpected task registered with task=9"},
             {"a beat 7", "a INVALID_ARGUMENT <E> Unexpected heartbeat request from task: 7. This "
                          "usually implies*"},
             {"a barrier 9 b 0", "a INVALID_ARGUMENT <EBb> *task (9) called the barrier: b::0*"}),
        PLAY("the same incarnation registers again", 2, {"all", NONE}, {"a register 1", "a OK @77"},
             {"a register 1 5", "a ABORTED <ES1> *different incarnation*"}),
        PLAY("another service is not answered", 1, {"all", NONE},
             {"a strange k",
              "a INTERNAL @77 <EM> wrong service incarnation: requested 5, currently 77"}),
    };

    (void)state;
    coordination_play_all(plays, sizeof(plays) / sizeof(plays[0]));
}

/* --- Heartbeats and errors --- */

#define SILENT_1                                                                                   \
    "UNAVAILABLE <E> *unhealthy (stopped sending heartbeats):\n1\nThe tasks have crashed.*"

static void errors_are_told_to_all(void **state)
{
    static const struct coordination_play plays[] = {
        PLAY("a silent task is told to all who poll", 3, {"all", NONE}, {"a poll 0", NONE},
             {"b poll 1", NONE}, {"c poll 2", NONE}, {"after 3000", NONE}, {"d beat 0", "d OK @77"},
             {"d beat 2", "d OK @77"}, {"due", "3000"}, {"after 2999999999ns", NONE},
             {"after 1ns", "a " SILENT_1 "; b " SILENT_1 "; c " SILENT_1}, {"d beat 0", "d OK @77"},
             {"d poll 2", "d UNAVAILABLE <E> *unhealthy*"},
             {"d register 1 999",
              "d ABORTED <ES1> 1 unexpectedly tried to connect while it is already*"}),
        PLAY("a restarted task that beats is an error", 2, {"all", NONE}, {"a poll 0", NONE},
             {"b beat 1 4",
              "a ABORTED <E> *Incarnation ID mismatch*; b ABORTED <E> 1 Heartbeat: Incarnation ID "
              "mismatch: expecting 101 but got 4.*"}),
        PLAY("a second poll ends the first", 1, {"all", NONE}, {"a poll 0", NONE},
             {"b poll 0", "a CANCELLED <E> Cancelled error polling because: new request from the "
                          "same task"},
             {"b drop", NONE}, {"after 6000", NONE}),
        PLAY("a reported error is told, and a reset forgets it", 2, {"all", NONE},
             {"a poll 1", NONE},
             {"b report 0 8 disk_full", "a RESOURCE_EXHAUSTED <ES0> disk_full; b OK @77"},
             {"b reset 0", "b OK @77"}, {"b register 0 300", "b OK @77"}),
    };

    (void)state;
    coordination_play_all(plays, sizeof(plays) / sizeof(plays[0]));
}

/* --- The end --- */

#define DISCONNECTED "CANCELLED <E> Cancelled error polling because: task has disconnected."

static void jobs_end_for_all_and_the_next_begins(void **state)
{
    static struct coordination_play plays[] = {
        PLAY("shutdown gives up and names the task that is missing", 2, {"all", NONE},
             {"a poll 1", NONE}, {"b shutdown 0", NONE}, {"c beat 1", "c OK @77"},
             {"after 3000",
              "a DEADLINE_EXCEEDED <E> *did not come to the shutdown barrier*; b INTERNAL "
              "<EBShutdown::77> *# of tasks that reached the barrier: 1/2.*"}),
        PLAY("shutdown waits for all and ends their polls", 2, {"all", NONE}, {"a poll 0", NONE},
             {"b poll 1", NONE}, {"c shutdown 0", NONE},
             {"d shutdown 1", "a " DISCONNECTED "; b " DISCONNECTED "; c OK @77; d OK @77"},
             {"due", "never"}, {"e register 0 500", NONE},
             {"f register 1 501", "e OK @78; f OK @78"}),
        PLAY("shutdown after an error fails", 2, {"all", NONE}, {"a beat 0", "a OK @77"},
             {"after 3000", NONE}, {"a beat 0", "a OK @77"}, {"after 3000", NONE},
             {"a shutdown 0",
              "a INTERNAL <EBShutdown::77> Shutdown barrier has failed.\nBarrier result: *Task (1) "
              "is already in error before the barrier was called. Barrier Id: Shutdown::77::0*"}),
        PLAY("a job that has died makes room for the next", 2, {"all", NONE}, {"after 6000", NONE},
             {"a register 0 500", NONE}, {"b register 1 501", "a OK @78; b OK @78"}),
        PLAY("the next job does not know the errors of the last", 2, {"all", NONE},
             {"after 6000", NONE},
             {"a states 0", "a OK v* 0:100/4!UNAVAILABLE 1:101/4!UNAVAILABLE"},
             {"a register 0 500", NONE}, {"b states 0", "b OK v* 0:500/3 1:0/1"}),
    };

    (void)state;
    plays[0].shutdown_timeout_ns = PLAY_BEAT_NS / 2;
    coordination_play_all(plays, sizeof(plays) / sizeof(plays[0]));
}

/* --- Barriers --- */

#define STRANGER_2                                                                                 \
    "INVALID_ARGUMENT #1 <EBsub> A non-participating task (2) called the barrier: sub::1"

static void barriers_are_passed_by_all_or_fail_for_all(void **state)
{
    static const struct coordination_play plays[] = {
        PLAY(
            "a barrier counts its instances", 2, {"all", NONE}, {"a barrier 0 s 0", NONE},
            {"b barrier 1 s 0", "a OK @77; b OK @77"}, {"a barrier 0 s 1", NONE},
            {"b barrier 1 s 1", "a OK @77 #1; b OK @77 #1"}, {"a barrier 0 s 2", NONE},
            {"b barrier 1 s 2", "a OK @77 #2; b OK @77 #2"}, {"a barrier 0 s 2", "a OK @77 #2"},
            {"a barrier 0 s 5",
             "a INTERNAL #2 <EBs> Barrier (s::5) is invoked by the task, but the service thinks it "
             "is the 2-th instance. One task is probably way too quick / slow in its execution.*"},
            {"a barrier 0 t 1", "a INTERNAL <EBt> *thinks it is the 0-th instance. The service or "
                                "task probably restarted, check*"},
            {"a barrier 0 s 0",
             "a INTERNAL #2 <EBs> *thinks it is the 2-th instance. The service or task*"}),
        PLAY("a late task gets the result that was", 3, {"all", NONE}, {"a barrier 1 late 0", NONE},
             {"after 500",
              "a DEADLINE_EXCEEDED <EBlate> *# of tasks that reached the barrier: 1/3.\nThe first "
              "task at the barrier: 1. Some timed out task names:\n0\n2\n"},
             {"b barrier 1 late 1", NONE}, {"b drop", NONE}, {"after 500", NONE},
             {"c barrier 0 late 1",
              "c DEADLINE_EXCEEDED #1 <EBlate> Barrier timed out. Id: late::1.*"}),
        PLAY(
            "members only, and all the same", 3, {"all", NONE}, {"a barrier 0 sub 0 1,0", NONE},
            {"b barrier 1 sub 0 0,1", "a OK @77; b OK @77"}, {"a barrier 0 sub 1 1,0", NONE},
            {"c barrier 2 sub 1 1,0", "a " STRANGER_2 "; c " STRANGER_2},
            {"b barrier 1 sub 1 1,0", "b " STRANGER_2}, {"a barrier 0 diff 0 1,0", NONE},
            {"b barrier 1 diff 0",
             "a INVALID_ARGUMENT <EBdiff> diff::0: No tasks were specified by the client, which "
             "implies that the entire*; b INVALID_ARGUMENT <EBdiff> diff::0: No tasks were*"},
            {"a barrier 0 twice 0 0,1,1", "a INVALID_ARGUMENT <EBtwice> *Conflicting tasks*"},
            {"a barrier 0 s3 0 0,9",
             "a INVALID_ARGUMENT <EBs3> *Unexpected task (9) that is not in the cluster called the "
             "barrier. Barrier Id: s3::0*"}),
        PLAY("members are settled by the first call", 3, {"all", NONE}, {"a barrier 0 s 0", NONE},
             {"b barrier 1 s 0 2,0,1", NONE}, {"c barrier 2 s 0", "a OK @77; b OK @77; c OK @77"},
             {"a barrier 0 s 1 0,1", "a INVALID_ARGUMENT #1 <EBs> *for the same barrier: s::1.*"},
             {"b barrier 1 s 1", "b INVALID_ARGUMENT #1 <EBs> *for the same barrier: s::1.*"},
             {"a barrier 0 late 0 0,1", NONE}, {"after 500", "a DEADLINE_EXCEEDED *"},
             {"b barrier 1 late 0 2,0,1",
              "b INVALID_ARGUMENT <EBlate> *for the same barrier: late::0.*"},
             {"b barrier 1 late 0 0,1", "b DEADLINE_EXCEEDED *"},
             {"a barrier 0 s3 0 0,9", "a INVALID_ARGUMENT *"}, /* settles nothing */
             {"a barrier 0 s3 1 2", "a INVALID_ARGUMENT #1 <EBs3> *A non-participating task (0)*"}),
        PLAY("the newer call of a task counts", 2, {"all", NONE}, {"a barrier 0 dup 0", NONE},
             {"b barrier 0 dup 0",
              "a CANCELLED Cancelled because there's a more recent barrier call "
              "for dup::0 from the same task."},
             {"c barrier 1 dup 0", "b OK @77; c OK @77"}),
        PLAY("a barrier is cancelled", 2, {"all", NONE}, {"a barrier 1 c 0", NONE},
             {"b cancel 0 c 0",
              "a CANCELLED <EBc> Barrier (c::0) is cancelled by task: 0; b OK @77"},
             {"b barrier 0 c 0", "b CANCELLED <EBc> *is cancelled by task: 0"},
             {"b cancel 0 c 0",
              "b FAILED_PRECONDITION <EBc> Barrier (c::0) has already been passed "
              "with status code: 1"},
             {"b cancel 0 unknown 0", "b OK @77"}),
    };

    (void)state;
    coordination_play_all(plays, sizeof(plays) / sizeof(plays[0]));
}

/* --- Tasks that may die and come back --- */

#define TWO_LIVE   "OK 0:100/0 1:101/0"
#define THREE_LIVE TWO_LIVE " 2:202/0"

static void recoverable_tasks_die_and_come_back(void **state)
{
    static struct coordination_play plays[] = {
        PLAY("a death ends the barriers that wait for it", 3, {"all", NONE},
             {"a barrier 0 with 0 0,1", NONE}, {"b barrier 0 without 0 0,2", NONE},
             {"lost 1", "a INTERNAL <EBwith> Barrier failed. Id: with::0. Task 1 will not come*"},
             {"c barrier 2 without 0 0,2", "b OK @77; c OK @77"}),
        PLAY("all who live hear the same", 3, {"all", NONE}, {"a alive 0 0,1,2,50", NONE},
             {"b alive 1 0,1,2,50", NONE}, {"lost 2", "a " TWO_LIVE "; b " TWO_LIVE},
             {"c register 2 202", "c OK @77"}, {"a alive 0 0,1,2,50", NONE},
             {"b alive 1 0,1,2,50", NONE},
             {"c alive 2 0,1,2,50", "a " THREE_LIVE "; b " THREE_LIVE "; c " THREE_LIVE},
             {"c alive 2 0,1", "c INVALID_ARGUMENT Requesting task 2 is not one of the tasks "
                               "specified in a GetAliveTasks request."},
             {"c alive 2", "c INVALID_ARGUMENT Requesting task 2 is not one of the tasks*"}),
        PLAY("a recoverable task that slept lives again", 2, {"all", NONE}, {"a poll 0", NONE},
             {"after 3000", NONE}, {"b beat 0", "b OK @77"},
             {"after 3000", NONE}, /* nobody is told */
             {"b states 0", "b OK v* 0:100/3 1:101/2"}, {"b beat 1", "b OK @77"},
             {"b states 0", "b OK v* 0:100/3 1:101/3"}),
        PLAY("a watch is told of changes", 2, {"all", NONE},
             {"a watch -1", "a OK v2 0:100/3 1:101/3"}, {"b watch 2", NONE},
             {"lost 0", "b OK v3 0:100/2 1:101/3"}),
    };

    (void)state;
    for (size_t i = 0; i < sizeof(plays) / sizeof(plays[0]); i++)
        plays[i].is_recoverable = true;
    coordination_play_all(plays, sizeof(plays) / sizeof(plays[0]));
}

int main(void)
{
    const struct CMUnitTest coordination[] = {
        cmocka_unit_test(registration_is_answered_as_tasks_come),
        cmocka_unit_test(errors_are_told_to_all),
        cmocka_unit_test(jobs_end_for_all_and_the_next_begins),
        cmocka_unit_test(barriers_are_passed_by_all_or_fail_for_all),
        cmocka_unit_test(recoverable_tasks_die_and_come_back),
    };

    return cmocka_run_group_tests(coordination, NULL, NULL);
}
