/* Threads of a crew, and their meetings. One mutex guards everything but the work itself. */
#include "training/replicas/crew_system.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

struct hand {
    struct muster_crew *crew;
    uint32_t number;
    pthread_t thread;
    enum muster_rc rc;
    /* guarded by the crew's mutex */
    const char *what; /* at a meeting; NULL: not there */
    bool has_returned;
    enum muster_rc outcome;      /* of the last meeting that it was at … */
    struct muster_error refusal; /* … and why it was not held; OK: it was */
};

struct muster_crew {
    muster_crew_fn *work;
    void *data;
    uint32_t count;
    struct hand *hands;
    void **brought;
    /* guarded by mutex */
    uint32_t came;     /* to this meeting */
    uint32_t returned; /* from their work */
    bool may_begin, is_called_off;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

/* --- Meetings --- */

/* In the mutex: this meeting has ended so, for all that are there. */
static void meeting_end(struct muster_crew *crew, enum muster_rc outcome,
                        const struct muster_error *refusal)
{
    for (uint32_t i = 0; i < crew->count; i++) {
        struct hand *hand = &crew->hands[i];

        if (hand->what == NULL)
            continue;
        hand->what = NULL;
        hand->outcome = outcome;
        hand->refusal = *refusal;
    }
    crew->came = 0;
    (void)pthread_cond_broadcast(&crew->changed);
}

/* Hands that wait for one that has returned would wait for ever. */
static void meeting_call_off(struct muster_crew *crew)
{
    struct muster_error refusal;
    uint32_t gone = 0;

    while (!crew->hands[gone].has_returned)
        gone++;
    (void)muster_error_set(&refusal, MUSTER_FAILED_PRECONDITION,
                           "replica %" PRIu32 " of this member has returned, and does not come to "
                           "what the others call",
                           gone);
    meeting_end(crew, refusal.rc, &refusal);
}

/* The first hand that wants something else than hand 0; or count. */
static uint32_t find_dissenter(const struct muster_crew *crew)
{
    uint32_t hand = 1;

    while (hand < crew->count && strcmp(crew->hands[hand].what, crew->hands[0].what) == 0)
        hand++;
    return hand;
}

/* In the mutex, which is left while the last hand acts: the others wait for it. */
static void meeting_hold(struct muster_crew *crew, muster_crew_act_fn *act, void *data)
{
    struct muster_error refusal = {.rc = MUSTER_OK};
    uint32_t other = find_dissenter(crew);
    enum muster_rc rc;

    if (other < crew->count) {
        rc = muster_error_set(&refusal, MUSTER_INVALID_ARGUMENT,
                              "replica 0 of this member calls %s, replica %" PRIu32 " %s",
                              crew->hands[0].what, other, crew->hands[other].what);
        meeting_end(crew, rc, &refusal);
        return;
    }
    (void)pthread_mutex_unlock(&crew->mutex);
    rc = act(data, crew->brought);
    (void)pthread_mutex_lock(&crew->mutex);
    meeting_end(crew, rc, &refusal);
}

enum muster_rc muster_crew_meet(struct muster_crew *crew, uint32_t hand, const char *what,
                                void *brought, muster_crew_act_fn *act, void *data,
                                struct muster_error *ret_error)
{
    struct hand *own = &crew->hands[hand];
    enum muster_rc rc;

    (void)pthread_mutex_lock(&crew->mutex);
    own->what = what;
    crew->brought[hand] = brought;
    crew->came++;
    if (crew->came == crew->count)
        meeting_hold(crew, act, data);
    else if (crew->returned > 0)
        meeting_call_off(crew);
    while (own->what != NULL)
        (void)pthread_cond_wait(&crew->changed, &crew->mutex);
    rc = own->outcome;
    if (own->refusal.rc != MUSTER_OK)
        *ret_error = own->refusal;
    (void)pthread_mutex_unlock(&crew->mutex);
    return rc;
}

/* --- Threads --- */

static void hand_work(struct hand *hand)
{
    struct muster_crew *crew = hand->crew;

    hand->rc = crew->work(crew, hand->number, crew->data);
    (void)pthread_mutex_lock(&crew->mutex);
    crew->returned++;
    hand->has_returned = true;
    if (crew->came > 0)
        meeting_call_off(crew);
    (void)pthread_mutex_unlock(&crew->mutex);
}

static void *thread_run(void *data)
{
    struct hand *hand = data;
    struct muster_crew *crew = hand->crew;
    bool may_work;

    (void)pthread_mutex_lock(&crew->mutex);
    while (!crew->may_begin && !crew->is_called_off)
        (void)pthread_cond_wait(&crew->changed, &crew->mutex);
    may_work = !crew->is_called_off;
    (void)pthread_mutex_unlock(&crew->mutex);
    if (may_work)
        hand_work(hand);
    return NULL;
}

/* How many there are: fewer than asked for where the system gives no more. Signals stay with the program's threads. */
static uint32_t threads_start(struct muster_crew *crew)
{
    sigset_t all, before;
    uint32_t started = 1;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < crew->count && pthread_create(&crew->hands[started].thread, NULL, thread_run,
                                                   &crew->hands[started]) == 0)
        started++;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* All threads are there before the work begins, so it is done by all of them or by none. */
static enum muster_rc crew_work(struct muster_crew *crew)
{
    uint32_t started = threads_start(crew);
    bool is_whole = started == crew->count;

    (void)pthread_mutex_lock(&crew->mutex);
    crew->may_begin = is_whole;
    crew->is_called_off = !is_whole;
    (void)pthread_cond_broadcast(&crew->changed);
    (void)pthread_mutex_unlock(&crew->mutex);
    if (is_whole)
        hand_work(&crew->hands[0]);
    for (uint32_t i = 1; i < started; i++)
        (void)pthread_join(crew->hands[i].thread, NULL);
    return is_whole ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
}

enum muster_rc muster_crew_run(struct muster_mem *mem, uint32_t count, muster_crew_fn *work,
                               void *data, uint32_t *ret_hand)
{
    struct muster_crew crew = {.work = work, .data = data, .count = count};
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    *ret_hand = 0;
    crew.hands = muster_mem_alloc_zero(mem, count, sizeof(*crew.hands));
    crew.brought = muster_mem_alloc_zero(mem, count, sizeof(*crew.brought));
    if (crew.hands != NULL && crew.brought != NULL) {
        (void)pthread_mutex_init(&crew.mutex, NULL); /* these never fail on Linux */
        (void)pthread_cond_init(&crew.changed, NULL);
        for (uint32_t i = 0; i < count; i++)
            crew.hands[i] = (struct hand){.crew = &crew, .number = i};
        rc = crew_work(&crew);
        for (uint32_t i = 0; rc == MUSTER_OK && i < count; i++) {
            rc = crew.hands[i].rc;
            *ret_hand = i;
        }
        (void)pthread_cond_destroy(&crew.changed);
        (void)pthread_mutex_destroy(&crew.mutex);
    }
    muster_mem_free(mem, crew.brought);
    muster_mem_free(mem, crew.hands);
    return rc;
}
