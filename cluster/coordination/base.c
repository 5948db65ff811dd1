/* The trunk of the coordination service: answers, tasks by number, and when their silence counts. Every
 * answer leaves through here, so that an ask is out of its list before its owner hears of it. */
#include "cluster/coordination/coordination_internal.h"

#include <stdarg.h>
#include <stdio.h>

/* Texts become grpc-message headers, which clients limit to a few KiB. A longer one is cut. */
#define TEXT_BYTES_MAX 1024

/* The text is made on the stack first: an argument may point into scratch, which is overwritten only then. */
const char *muster_coordination_format(struct muster_coordination *coordination, const char *fmt,
                                       ...)
{
    char text[TEXT_BYTES_MAX];
    va_list arguments;

    va_start(arguments, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, arguments);
    va_end(arguments);
    muster_text_clear(&coordination->scratch);
    muster_text_add_string(&coordination->scratch, text);
    return coordination->scratch.is_failed ? "out of memory" : coordination->scratch.bytes;
}

/* An error without a text is one whose text there was no memory to keep. The ask leaves its list first: its owner
 * may free it in the callback. */
void muster_coordination_answer(struct muster_coordination *coordination,
                                struct muster_coordination_ask *ask,
                                const struct muster_coordination_answer *answer)
{
    struct muster_coordination_answer told = *answer;

    if (told.rc != MUSTER_OK && told.text == NULL)
        told.text = "out of memory";
    muster_list_remove(&ask->node);
    coordination->ops->answer(coordination->data, ask, &told);
}

void muster_coordination_succeed(struct muster_coordination *coordination,
                                 struct muster_coordination_ask *ask)
{
    const struct muster_coordination_answer answer = {
        .rc = MUSTER_OK, .service_incarnation = coordination->options.service_incarnation};

    muster_coordination_answer(coordination, ask, &answer);
}

void muster_coordination_refuse(struct muster_coordination *coordination,
                                struct muster_coordination_ask *ask, enum muster_rc rc,
                                const char *text)
{
    const struct muster_coordination_answer answer = {
        .rc = rc, .text = text, .details = MUSTER_COORDINATION_DETAIL_ERROR};

    MUSTER_ASSERT(rc != MUSTER_OK);
    muster_coordination_answer(coordination, ask, &answer);
}

/* Numbers of tasks come from the wire, so the bound is checked here and nowhere else. */
struct muster_coordination_task *muster_coordination_find_task(
    struct muster_coordination *coordination, uint32_t id)
{
    return id < coordination->options.task_count ? &coordination->tasks[id] : NULL;
}

void muster_coordination_forget_error(struct muster_coordination *coordination)
{
    muster_mem_free(coordination->mem, coordination->text);
    coordination->text = NULL;
    coordination->rc = MUSTER_OK;
}

/* The task goes to the end of the list, so the list is in order of silence and the first one is due first. */
void muster_coordination_beat(struct muster_coordination *coordination,
                              struct muster_coordination_task *task)
{
    MUSTER_ASSERT(task->state == MUSTER_TASK_CONNECTED);
    task->beaten_ns = coordination->now_ns;
    muster_list_remove(&task->beat_node);
    muster_list_append(&coordination->beating, &task->beat_node);
}

/* Before all have registered a task may be waiting for the others without heartbeats. Their silence counts
 * from now on, with the full time, and not from when each of them registered. */
void muster_coordination_listen(struct muster_coordination *coordination)
{
    coordination->has_all = true;
    for (uint32_t id = 0; id < coordination->options.task_count; id++)
        if (coordination->tasks[id].state == MUSTER_TASK_CONNECTED)
            muster_coordination_beat(coordination, &coordination->tasks[id]);
}
