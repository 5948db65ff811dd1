/* The roll: a growing array of names. It is searched when a task commits the first step of a life,
 * is lost or joins, not more often, so a linear search does.
 *
 * With several launchers a key in the registry keeps for a day that tasks of this one were members:
 * a launcher that replaces this one knows then that they rejoin. The key is written once, after the
 * first member; it is a hint for the log, and nothing waits for it. */
#include "run/registry/roll.h"

#include "common/output.h"
#include "common/text_bytes.h"
#include "run/registry/registry.h"

#include <stdlib.h>
#include <string.h>

#define WITHIN_NS (30 * MUSTER_NS_PER_S) /* a registry may be away at the start */
#define LEASE_S   (24 * 3600)            /* the key must not stay for ever if no sweep removes it */

enum run_roll_state {
    RUN_ROLL_LOCAL,    /* nobody else asks for it */
    RUN_ROLL_READING,  /* whether a launcher before this one had members */
    RUN_ROLL_READ,     /* none had, and none of ours was one yet */
    RUN_ROLL_GRANTING, /* one was: the lease of the key is granted */
    RUN_ROLL_WRITING,
    RUN_ROLL_WRITTEN, /* for good, by this launcher or one before it */
};

struct run_roll {
    char **names;
    size_t count;
    struct run *run;
    enum run_roll_state state;
    struct muster_registry_op op;
    char key[200];
};

struct run_roll *run_roll_new(void)
{
    struct run_roll *roll = calloc(1, sizeof(*roll));

    if (roll == NULL)
        output_no_memory();
    return roll;
}

void run_roll_free(struct run_roll *roll)
{
    if (roll == NULL)
        return;
    for (size_t i = 0; i < roll->count; i++)
        free(roll->names[i]);
    free(roll->names);
    free(roll);
}

static bool roll_add_name(struct run_roll *roll, const char *name)
{
    char **names;

    for (size_t i = 0; i < roll->count; i++)
        if (strcmp(roll->names[i], name) == 0)
            return false;
    names = realloc(roll->names, (roll->count + 1) * sizeof(names[0]));
    if (names == NULL)
        output_no_memory();
    roll->names = names;
    names[roll->count] = strdup(name);
    if (names[roll->count++] == NULL)
        output_no_memory();
    return true;
}

/* --- the key of this launcher */

static uint64_t roll_deadline(const struct run_roll *roll)
{
    return muster_loop_after_ns(roll->run->env->loop, WITHIN_NS);
}

static void roll_move(struct run_roll *roll, enum run_roll_state to)
{
    static const unsigned allowed[] = {
        [RUN_ROLL_LOCAL] = 1u << RUN_ROLL_READING,
        [RUN_ROLL_READING] = 1u << RUN_ROLL_READ | 1u << RUN_ROLL_WRITTEN,
        [RUN_ROLL_READ] = 1u << RUN_ROLL_GRANTING,
        [RUN_ROLL_GRANTING] = 1u << RUN_ROLL_READ | 1u << RUN_ROLL_WRITING,
        [RUN_ROLL_WRITING] = 1u << RUN_ROLL_READ | 1u << RUN_ROLL_WRITTEN,
        [RUN_ROLL_WRITTEN] = 0,
    };

    MUSTER_ASSERT((allowed[roll->state] & 1u << to) != 0);
    roll->state = to;
}

/* A failure costs a word in the log of a later launcher: the next member tries again. */
static void on_written(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_roll *roll = op->data;

    roll_move(roll, rc == MUSTER_OK ? RUN_ROLL_WRITTEN : RUN_ROLL_READ);
}

static void on_granted(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_roll *roll = op->data;
    struct muster_bytes value = text_bytes("members");
    bool is_writing =
        rc == MUSTER_OK &&
        muster_registry_put_start(op, run_registry_client(roll->run), text_bytes(roll->key), value,
                                  op->lease, roll_deadline(roll), on_written) == MUSTER_OK;

    roll_move(roll, is_writing ? RUN_ROLL_WRITING : RUN_ROLL_READ);
}

static void roll_write(struct run_roll *roll)
{
    if (roll->state == RUN_ROLL_READ &&
        muster_registry_grant_start(&roll->op, run_registry_client(roll->run), LEASE_S, 0,
                                    roll_deadline(roll), on_granted) == MUSTER_OK)
        roll_move(roll, RUN_ROLL_GRANTING);
}

static void on_read(struct muster_registry_op *op, enum muster_rc rc)
{
    struct run_roll *roll = op->data;
    bool has_members = roll->count > 0;
    bool is_written = rc == MUSTER_OK && op->kv_count > 0; /* by a launcher before this one */

    for (uint32_t i = 0; is_written && i < roll->run->task_count; i++)
        roll_add_name(roll, roll->run->tasks[i].name);
    roll_move(roll, is_written ? RUN_ROLL_WRITTEN : RUN_ROLL_READ);
    if (has_members)
        roll_write(roll);
}

void run_roll_share(struct run_roll *roll, struct run *run)
{
    const struct run_settings *settings = &run->settings;
    struct muster_registry_range range = {.reach = MUSTER_REGISTRY_KEY};

    if (settings->nodes_max == 1)
        return;
    roll->run = run;
    roll->op.data = roll;
    snprintf(roll->key, sizeof(roll->key), "/muster/%s/were_members/%llu", settings->job_name,
             (unsigned long long)settings->node_rank);
    range.key = text_bytes(roll->key);
    if (muster_registry_range_start(&roll->op, run_registry_client(run), &range,
                                    roll_deadline(roll), on_read) == MUSTER_OK)
        roll_move(roll, RUN_ROLL_READING);
}

/* --- */

bool run_roll_add(struct run_roll *roll, const char *name)
{
    bool is_new = roll_add_name(roll, name);

    roll_write(roll);
    return is_new;
}

struct muster_json *run_roll_save(const struct run_roll *roll)
{
    struct muster_json *names = muster_json_array_new();

    for (size_t i = 0; i < roll->count; i++)
        if (!muster_json_append(names, muster_json_text_new(roll->names[i])))
            break;
    return names;
}

void run_roll_load(struct run_roll *roll, const struct muster_json *names)
{
    for (size_t i = 0; i < muster_json_count(names); i++) {
        const char *name = muster_json_text(muster_json_at(names, i));

        if (name != NULL)
            run_roll_add(roll, name);
    }
}
