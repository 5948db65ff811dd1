/* Plays: what is asked of a coordination service step by step, and what it tells at each step. */
#ifndef TESTS_LIB_COORDINATION_SCENE_PLAY_H
#define TESTS_LIB_COORDINATION_SCENE_PLAY_H

#include "coordination_scene.h"

#define PLAY_BEAT_NS     (6 * MUSTER_NS_PER_S)
#define PLAY_REGISTER_NS (3600 * MUSTER_NS_PER_S)
#define PLAY_SERVICE     77u

/**
 * A step, and a pattern (fnmatch) of all that is told during it, in order, with "; " between two.
 *
 * Steps that ask begin with a letter, the name of the question: "a register TASK [INCARNATION]" (100 + TASK
 * unless it is given), "a beat TASK [INCARNATION]", "a poll|shutdown|reset|states TASK", "a report TASK CODE
 * TEXT", "a watch VERSION", "a insert|overwrite KEY VALUE", "a get|try|dir|delete KEY", "a add KEY NUMBER", "a
 * barrier TASK ID COUNTER [TASKS]", "a cancel TASK ID COUNTER", "a alive TASK [TASKS]", "a strange KEY" (a try of
 * another service's). "a drop" drops it. The others: "all" (all tasks register), "lost TASK", "after MS", "due"
 * (tells in how many ms something is); "after 5ns" is 5 ns. '' is an empty word.
 *
 * Answers: the name, the code, "@" the service, "#" the counter, "v" the version, "<" details ">" (E, S with the
 * source, B with the barrier, M), "key=value", "task:incarnation/state!error", the text.
 */
struct coordination_step {
    const char *step, *told;
};

#define PLAY_STEPS_MAX 20

struct coordination_play {
    const char *name;
    uint32_t tasks;
    bool is_recoverable;
    bool tells_kept;              /* "+key=value" and "-key" for what is kept */
    uint64_t shutdown_timeout_ns; /* 0: 300 s */
    struct coordination_step steps[PLAY_STEPS_MAX + 1]; /* up to the first without a text */
};

/** The fields of a play; PLAY where there are no others. */
#define PLAY_BODY(name_, tasks_, ...) .name = name_, .tasks = tasks_, .steps = {__VA_ARGS__}
#define PLAY(...) {PLAY_BODY(__VA_ARGS__)}

/** Fails the case at the first step that tells something else. Each question is answered once at most. */
void coordination_play_all(const struct coordination_play *plays, size_t count);

#endif
