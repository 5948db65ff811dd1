/* One job from the records of its launchers and its view. A launcher knows its own tasks only; the
 * view in the registry knows all members, but not what they do. docs/monitoring.md
 * describes the result. */
#include "jobs/jobs.h"

#include <muster/view.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct muster_json *member_get(const struct muster_json *object, const char *name)
{
    return muster_json_member(object, name);
}

static const char *text_of(const struct muster_json *object, const char *name)
{
    const char *text = muster_json_text(member_get(object, name));

    return text != NULL ? text : "";
}

static struct muster_json *number_new(uint64_t value)
{
    return muster_json_integer_new((int64_t)value);
}

static struct muster_json *text_or_null(const char *text)
{
    return muster_json_text_new(text[0] != '\0' ? text : NULL);
}

static struct muster_json *copy_of(const struct muster_json *value)
{
    switch (muster_json_kind(value)) {
    case MUSTER_JSON_INTEGER:
        return muster_json_integer_new(muster_json_integer(value));
    case MUSTER_JSON_REAL:
        return muster_json_real_new(muster_json_number(value));
    case MUSTER_JSON_TEXT:
        return muster_json_text_new(muster_json_text(value));
    default:
        return muster_json_null_new();
    }
}

/* --- waits */

/* A member, and the one that it waits for in the end, through others. */
struct wait {
    const char *task, *awaited; /* "": it does not wait */
    size_t order;               /* the first record of a task counts */
    const char *end;            /* once is_known; NULL: the members wait in a circle */
    bool is_known, is_passed;
};

/* Waits of all records, by task. */
struct waits {
    struct wait *all;
    size_t count;
};

static int wait_compare(const void *a, const void *b)
{
    const struct wait *left = a, *right = b;
    int order = strcmp(left->task, right->task);

    return order != 0 ? order : (left->order > right->order) - (left->order < right->order);
}

static bool waits_open(struct waits *waits, const struct job_facts *facts)
{
    size_t room = 1;

    for (size_t i = 0; i < facts->record_count; i++)
        room += muster_json_count(member_get(facts->records[i], "members"));
    *waits = (struct waits){.all = calloc(room, sizeof(waits->all[0]))};
    for (size_t i = 0; waits->all != NULL && i < facts->record_count; i++) {
        const struct muster_json *members = member_get(facts->records[i], "members");

        for (size_t k = 0; k < muster_json_count(members); k++) {
            const struct muster_json *member = muster_json_at(members, k);
            bool is_waiting = strcmp(text_of(member, "state"), "waiting") == 0;

            waits->all[waits->count] =
                (struct wait){.task = text_of(member, "task"),
                              .awaited = is_waiting ? text_of(member, "waits_for") : "",
                              .order = waits->count};
            waits->count++;
        }
    }
    if (waits->all != NULL)
        qsort(waits->all, waits->count, sizeof(waits->all[0]), wait_compare);
    return waits->all != NULL;
}

/* The first of that task in the sorted array; NULL: no record tells of it. */
static struct wait *wait_find(const struct waits *waits, const char *task)
{
    size_t low = 0, high = waits->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (strcmp(waits->all[middle].task, task) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < waits->count && strcmp(waits->all[low].task, task) == 0 ? &waits->all[low] : NULL;
}

/* Follow the chain to the member that waits for nobody in the records, and note the end for all on
 * the way: each member is passed once, however many stand behind it. Members in a circle have no
 * end. */
static const char *wait_end(const struct waits *waits, struct wait *from)
{
    struct wait *at = from, *next;
    const char *end;

    while (!at->is_known && !at->is_passed && at->awaited[0] != '\0' &&
           (next = wait_find(waits, at->awaited)) != NULL) {
        at->is_passed = true;
        at = next;
    }
    if (at->is_known || at->is_passed)
        end = at->end; /* passed and not known: a circle */
    else
        end = at->awaited[0] != '\0' ? at->awaited : at->task;
    for (at = from; at != NULL && !at->is_known; at = wait_find(waits, at->awaited)) {
        at->is_known = true;
        at->end = end;
    }
    return end;
}

/* Each launcher has followed the chain through its own tasks; here it goes on through all. */
static const char *awaited_by(const struct waits *waits, const struct muster_json *member)
{
    const char *awaited = text_of(member, "waits_for"), *end;
    struct wait *next = wait_find(waits, awaited);

    if (next == NULL)
        return awaited;
    end = wait_end(waits, next);
    return end != NULL ? end : awaited;
}

/* --- members */

static struct muster_json *member_of(const struct waits *waits, const struct muster_json *member)
{
    static const char *const names[] = {"task",  "rank", "host", "pid",
                                        "state", "op",   "step", "restarts"};
    struct muster_json *object = muster_json_object_new();
    bool is_whole = true;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && is_whole; i++) {
        is_whole = muster_json_set(object, names[i], copy_of(member_get(member, names[i])));
        if (is_whole && strcmp(names[i], "state") == 0)
            is_whole =
                muster_json_set(object, "waits_for", text_or_null(awaited_by(waits, member)));
    }
    if (is_whole)
        return object;
    muster_json_free(object);
    return NULL;
}

/* A member that no launcher tells of: it was started without one, or its launcher is gone. */
static struct muster_json *stranger_of(const struct job_facts *facts, uint32_t rank,
                                       const char *task)
{
    const struct muster_member *member = &facts->view->members[rank];
    char host[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_json *object = muster_json_object_new();

    if (muster_json_set(object, "task", muster_json_text_new(task)) &&
        muster_json_set(object, "rank", number_new(rank)) &&
        muster_json_set(object, "host",
                        muster_json_text_new(muster_address_format(&member->address, host))) &&
        muster_json_set(object, "pid", number_new((uint64_t)member->pid)) &&
        muster_json_set(object, "state",
                        muster_json_text_new(facts->is_registered[rank] ? "member" : "gone")) &&
        muster_json_set(object, "waits_for", muster_json_null_new()) &&
        muster_json_set(object, "op", muster_json_null_new()) &&
        muster_json_set(object, "step", muster_json_null_new()) &&
        muster_json_set(object, "restarts", muster_json_null_new()))
        return object;
    muster_json_free(object);
    return NULL;
}

static struct muster_json *members_of(const struct job_facts *facts, const struct waits *waits)
{
    struct muster_json *list = muster_json_array_new();
    char task[MUSTER_JOB_NAME_BYTES + 16];

    for (size_t i = 0; i < facts->record_count; i++) {
        const struct muster_json *members = member_get(facts->records[i], "members");

        for (size_t k = 0; k < muster_json_count(members); k++)
            if (!muster_json_append(list, member_of(waits, muster_json_at(members, k))))
                return list;
    }
    for (uint32_t rank = 0; facts->view != NULL && rank < facts->view->member_count; rank++) {
        snprintf(task, sizeof(task), "%s:%u", facts->view->members[rank].task_type,
                 facts->view->members[rank].task_index);
        if (wait_find(waits, task) == NULL &&
            !muster_json_append(list, stranger_of(facts, rank, task)))
            break;
    }
    return list;
}

static struct muster_json *launchers_of(const struct job_facts *facts)
{
    static const char *const names[] = {"node_rank", "host", "pid", "status", "state", "reason"};
    struct muster_json *list = muster_json_array_new();

    for (size_t i = 0; i < facts->record_count; i++) {
        struct muster_json *one = muster_json_object_new();

        for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
            if (!muster_json_set(one, names[k], copy_of(member_get(facts->records[i], names[k]))))
                break;
        if (!muster_json_append(list, one))
            break;
    }
    return list;
}

/* The first launcher whose state is not "running" speaks for the job: users look for what is
 * wrong. */
static const struct muster_json *speaker_of(const struct job_facts *facts)
{
    for (size_t i = 0; i < facts->record_count; i++)
        if (strcmp(text_of(facts->records[i], "state"), "running") != 0)
            return facts->records[i];
    return facts->record_count > 0 ? facts->records[0] : NULL;
}

static const char *state_of(const struct job_facts *facts)
{
    const struct muster_json *speaker = speaker_of(facts);

    if (speaker != NULL)
        return text_of(speaker, "state");
    for (uint32_t rank = 0; rank < facts->view->member_count; rank++)
        if (facts->is_registered[rank])
            return facts->view->is_stopping ? "ending" : "running";
    return facts->view->is_stopping ? "preempted" : "ended";
}

static uint64_t highest_of(const struct job_facts *facts, const char *name)
{
    uint64_t highest = 0;

    for (size_t i = 0; i < facts->record_count; i++) {
        int64_t value = muster_json_integer(member_get(facts->records[i], name));

        if (value > 0 && (uint64_t)value > highest)
            highest = (uint64_t)value;
    }
    return highest;
}

/* The view knows the step of a job only when it is done. */
static struct muster_json *step_of(const struct job_facts *facts)
{
    if (facts->record_count > 0)
        return number_new(highest_of(facts, "step"));
    return facts->view->is_done ? number_new(facts->view->done_step) : muster_json_null_new();
}

static struct muster_json *values_of(const struct job_facts *facts)
{
    struct muster_json *values = muster_json_object_new();
    struct muster_json_walk walk;

    for (size_t i = 0; i < facts->record_count && muster_json_count(values) == 0; i++)
        for (bool more = muster_json_walk_first(&walk, member_get(facts->records[i], "values"));
             more; more = muster_json_walk_next(&walk))
            if (!muster_json_set(values, walk.name, copy_of(walk.value)))
                break;
    return values;
}

struct muster_json *jobs_merge(const struct job_facts *facts)
{
    struct muster_json *object = muster_json_object_new();
    struct waits waits = {.all = NULL};
    bool is_whole;
    uint64_t view = facts->view != NULL ? facts->view->epoch : highest_of(facts, "view");
    uint64_t members =
        facts->view != NULL ? facts->view->member_count : highest_of(facts, "members_in_view");

    is_whole =
        muster_json_set(object, "job", muster_json_text_new(facts->name)) &&
        muster_json_set(object, "view", number_new(view)) &&
        muster_json_set(object, "members_in_view", number_new(members)) &&
        muster_json_set(object, "step", step_of(facts)) &&
        muster_json_set(object, "state", muster_json_text_new(state_of(facts))) &&
        muster_json_set(object, "reason", text_or_null(text_of(speaker_of(facts), "reason"))) &&
        muster_json_set(object, "values", values_of(facts)) &&
        muster_json_set(object, "launchers", launchers_of(facts)) && waits_open(&waits, facts) &&
        muster_json_set(object, "members", members_of(facts, &waits));
    free(waits.all);
    if (is_whole)
        return object;
    muster_json_free(object);
    return NULL;
}
