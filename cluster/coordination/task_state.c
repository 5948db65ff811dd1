/* The states of tasks: every change goes through here and is told to watches, polls, barriers and rounds.
 * The order is the same each time: the state first, then its publication, then those that wait for the task. */
#include "cluster/coordination/coordination_internal.h"

#include <inttypes.h>
#include <string.h>

static struct muster_coordination_task_info info_of(const struct muster_coordination_task *task)
{
    return (struct muster_coordination_task_info){.id = task->id,
                                                  .state = task->state,
                                                  .rc = task->rc,
                                                  .text = task->text,
                                                  .incarnation = task->incarnation,
                                                  .has_shut_down = task->has_shut_down};
}

/* --- Reading --- */

/* Answer with the states of the tasks in ids, or of all when count is 0. */
static void answer_states(struct muster_coordination *coordination,
                          struct muster_coordination_ask *ask, const uint32_t *ids, size_t count)
{
    struct muster_coordination_answer answer = {.version = coordination->version};
    struct muster_coordination_task_info *infos;
    size_t shown = count > 0 ? count : coordination->options.task_count;

    infos = muster_mem_alloc_zero(coordination->mem, shown, sizeof(*infos));
    if (infos == NULL) {
        muster_coordination_refuse(coordination, ask, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    for (size_t i = 0; i < shown; i++) {
        const struct muster_coordination_task *task =
            muster_coordination_find_task(coordination, count > 0 ? ids[i] : (uint32_t)i);

        if (task != NULL)
            infos[answer.task_count++] = info_of(task);
    }
    answer.tasks = infos;
    muster_coordination_answer(coordination, ask, &answer);
    muster_mem_free(coordination->mem, infos);
}

void muster_coordination_tell_states(struct muster_coordination *coordination,
                                     const struct muster_coordination_request *request,
                                     struct muster_coordination_ask *ask)
{
    answer_states(coordination, ask, request->tasks, request->task_count);
}

/* A caller that knows an older version is answered at once: the change may have come between two of its
 * calls. */
void muster_coordination_watch(struct muster_coordination *coordination,
                               const struct muster_coordination_request *request,
                               struct muster_coordination_ask *ask)
{
    if (request->number < coordination->version)
        answer_states(coordination, ask, NULL, 0);
    else
        muster_list_append(&coordination->watches, &ask->node);
}

/* --- Changing --- */

/* Publish a change. Watches are taken off the list first: an answer may lead to a new watch. */
static void state_changed(struct muster_coordination *coordination,
                          const struct muster_coordination_task *task)
{
    const struct muster_coordination_task_info info = info_of(task);
    struct muster_list round, *node;

    coordination->version++;
    if (coordination->ops->keep_task != NULL)
        coordination->ops->keep_task(coordination->data, &info);
    muster_list_take_all(&round, &coordination->watches);
    while ((node = muster_list_pop(&round)) != NULL)
        answer_states(coordination, MUSTER_CONTAINER_OF(node, struct muster_coordination_ask, node),
                      NULL, 0);
}

/* Without memory the text is NULL, which answers show as "out of memory" (base.c). */
static void error_set(struct muster_coordination *coordination,
                      struct muster_coordination_task *task, enum muster_rc rc, const char *text)
{
    muster_mem_free(coordination->mem, task->text);
    task->rc = rc;
    task->text = text != NULL ? muster_mem_strdup(coordination->mem, text) : NULL;
}

/* Before all have registered nothing is expected of the task yet, so it is not beating. */
void muster_coordination_connect(struct muster_coordination *coordination,
                                 struct muster_coordination_task *task)
{
    task->state = MUSTER_TASK_CONNECTED;
    task->has_shut_down = false;
    error_set(coordination, task, MUSTER_OK, NULL);
    if (coordination->has_all)
        muster_coordination_beat(coordination, task);
    state_changed(coordination, task);
    muster_coordination_review_alive(coordination);
}

/* A client keeps one poll open; CANCELLED tells it that no error has happened. */
void muster_coordination_end_poll(struct muster_coordination *coordination,
                                  struct muster_coordination_task *task, const char *why)
{
    struct muster_coordination_ask *poll = task->poll;

    task->poll = NULL;
    if (poll != NULL)
        muster_coordination_refuse(
            coordination, poll, MUSTER_CANCELLED,
            muster_coordination_format(coordination, "Cancelled error polling because: %s", why));
}

/* The state changes first: barriers and rounds that end by it must not wait for this task again. */
void muster_coordination_disconnect(struct muster_coordination *coordination,
                                    struct muster_coordination_task *task, const char *reason)
{
    task->state = MUSTER_TASK_DISCONNECTED;
    error_set(coordination, task, MUSTER_OK, NULL);
    muster_list_remove(&task->beat_node);
    state_changed(coordination, task);
    muster_coordination_end_poll(coordination, task, "task has disconnected.");
    muster_coordination_leave_barriers(coordination, task->id, reason);
    muster_coordination_review_alive(coordination);
}

static void answer_poll(struct muster_coordination *coordination,
                        struct muster_coordination_task *task, enum muster_rc rc, const char *text,
                        const uint32_t *source)
{
    struct muster_coordination_answer answer = {
        .rc = rc, .text = text, .details = MUSTER_COORDINATION_DETAIL_ERROR};
    struct muster_coordination_ask *poll = task->poll;

    if (poll == NULL)
        return;
    if (source != NULL) {
        answer.details |= MUSTER_COORDINATION_DETAIL_SOURCE;
        answer.source_task = *source;
    }
    task->poll = NULL;
    muster_coordination_answer(coordination, poll, &answer);
}

/* The first error is the error of the job, which every later poll and heartbeat is answered with: the errors
 * that follow are mostly its consequences. A task that is in error already keeps its first one. */
void muster_coordination_fail(struct muster_coordination *coordination,
                              struct muster_coordination_task *task, enum muster_rc rc,
                              const char *text, bool is_reported)
{
    char *copy = muster_mem_strdup(coordination->mem, text); /* text may be scratch */
    const char *told = copy != NULL ? copy : "out of memory";

    if (task->state == MUSTER_TASK_ERROR) {
        muster_mem_free(coordination->mem, copy);
        return;
    }
    MUSTER_ASSERT(rc != MUSTER_OK);
    task->state = MUSTER_TASK_ERROR;
    error_set(coordination, task, rc, told);
    muster_list_remove(&task->beat_node);
    state_changed(coordination, task);
    if (coordination->rc == MUSTER_OK) {
        coordination->rc = rc;
        coordination->text = copy;
        coordination->error_task = task->id;
        copy = NULL;
    }
    for (uint32_t id = 0; id < coordination->options.task_count; id++)
        answer_poll(coordination, &coordination->tasks[id], rc, told,
                    is_reported ? &task->id : NULL);
    muster_coordination_leave_barriers(coordination, task->id, told);
    muster_coordination_review_alive(coordination);
    muster_mem_free(coordination->mem, copy);
}

/* Nothing is published: nobody watches yet, and the file has it already. The error of the job is that of the
 * task in error with the lowest number, since the file does not say which came first. */
enum muster_rc muster_coordination_restore_task(struct muster_coordination *coordination,
                                                uint64_t now_ns,
                                                const struct muster_coordination_task_info *info)
{
    struct muster_coordination_task *task = muster_coordination_find_task(coordination, info->id);

    if (task == NULL)
        return MUSTER_DATA_LOSS;
    task->state = info->state;
    task->incarnation = info->incarnation;
    task->has_shut_down = info->has_shut_down;
    error_set(coordination, task, info->rc, info->text);
    muster_list_remove(&task->beat_node);
    coordination->now_ns = now_ns;
    if (task->state == MUSTER_TASK_CONNECTED && coordination->has_all)
        muster_coordination_beat(coordination, task);
    if (task->state == MUSTER_TASK_ERROR && coordination->rc == MUSTER_OK) {
        coordination->rc = info->rc;
        coordination->error_task = task->id;
        coordination->text =
            muster_mem_strdup(coordination->mem, info->text != NULL ? info->text : "");
        if (coordination->text == NULL)
            return MUSTER_RESOURCE_EXHAUSTED;
    }
    return info->text != NULL && task->text == NULL ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK;
}
