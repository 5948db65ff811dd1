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
    uint64_t run;     /* the last one that it has begun */
    const char *what; /* at a meeting; NULL: not there */
    bool has_returned;
    enum muster_rc outcome;      /* of the last meeting that it was at … */
    struct muster_error refusal; /* … and why it was not held; OK: it was */
};

struct muster_crew {
    struct muster_mem *mem;
    uint32_t count, started; /* hands; those that have a thread, with hand 0 */
    struct hand *hands;
    void **brought;
    /* of a run, from its begin to its end */
    muster_crew_fn *work;
    void *data;
    /* guarded by mutex */
    uint64_t run;      /* the number of the last one that has begun */
    uint32_t came;     /* to this meeting */
    uint32_t returned; /* from their work */
    bool is_running, is_closing;
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
    if (crew->returned == crew->count)
        (void)pthread_cond_broadcast(&crew->changed);
    (void)pthread_mutex_unlock(&crew->mutex);
}

/* False: the crew closes. */
static bool hand_await_run(struct hand *hand)
{
    struct muster_crew *crew = hand->crew;
    bool is_closing;

    (void)pthread_mutex_lock(&crew->mutex);
    while (hand->run == crew->run && !crew->is_closing)
        (void)pthread_cond_wait(&crew->changed, &crew->mutex);
    hand->run = crew->run;
    is_closing = crew->is_closing;
    (void)pthread_mutex_unlock(&crew->mutex);
    return !is_closing;
}

static void *thread_run(void *data)
{
    while (hand_await_run(data))
        hand_work(data);
    return NULL;
}

/* Those that are missing. False: the system gives no more. Signals stay with the program's threads. */
static bool threads_start(struct muster_crew *crew)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    while (crew->started < crew->count) {
        struct hand *hand = &crew->hands[crew->started];

        hand->run = crew->run;
        if (pthread_create(&hand->thread, NULL, thread_run, hand) != 0)
            break;
        crew->started++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return crew->started == crew->count;
}

/* --- Runs --- */

enum muster_rc muster_crew_open(struct muster_mem *mem, uint32_t count,
                                struct muster_crew **ret_crew)
{
    struct muster_crew *crew = muster_mem_alloc_zero(mem, 1, sizeof(*crew));

    if (crew == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    crew->mem = mem;
    crew->count = count;
    crew->started = 1;
    (void)pthread_mutex_init(&crew->mutex, NULL); /* these never fail on Linux */
    (void)pthread_cond_init(&crew->changed, NULL);
    crew->hands = muster_mem_alloc_zero(mem, count, sizeof(*crew->hands));
    crew->brought = muster_mem_alloc_zero(mem, count, sizeof(*crew->brought));
    if (crew->hands == NULL || crew->brought == NULL) {
        muster_crew_close(crew);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    for (uint32_t i = 0; i < count; i++)
        crew->hands[i] = (struct hand){.crew = crew, .number = i};
    *ret_crew = crew;
    return MUSTER_OK;
}

/* False: one is under way. */
static bool run_take(struct muster_crew *crew)
{
    bool is_taken;

    (void)pthread_mutex_lock(&crew->mutex);
    is_taken = !crew->is_running;
    crew->is_running = true;
    (void)pthread_mutex_unlock(&crew->mutex);
    return is_taken;
}

static void run_give_back(struct muster_crew *crew)
{
    (void)pthread_mutex_lock(&crew->mutex);
    crew->is_running = false;
    (void)pthread_mutex_unlock(&crew->mutex);
}

/* All threads are there before the work begins, so it is done by all of them or by none. */
static void run_work(struct muster_crew *crew)
{
    (void)pthread_mutex_lock(&crew->mutex);
    crew->came = crew->returned = 0;
    for (uint32_t i = 0; i < crew->count; i++)
        crew->hands[i].has_returned = false;
    crew->run++;
    (void)pthread_cond_broadcast(&crew->changed);
    (void)pthread_mutex_unlock(&crew->mutex);
    hand_work(&crew->hands[0]);
    (void)pthread_mutex_lock(&crew->mutex);
    while (crew->returned < crew->count)
        (void)pthread_cond_wait(&crew->changed, &crew->mutex);
    (void)pthread_mutex_unlock(&crew->mutex);
}

enum muster_rc muster_crew_run(struct muster_crew *crew, muster_crew_fn *work, void *data,
                               uint32_t *ret_hand)
{
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (!run_take(crew))
        return MUSTER_FAILED_PRECONDITION;
    *ret_hand = 0;
    crew->work = work;
    crew->data = data;
    if (threads_start(crew)) {
        run_work(crew);
        rc = MUSTER_OK;
    }
    for (uint32_t i = 0; rc == MUSTER_OK && i < crew->count; i++) {
        rc = crew->hands[i].rc;
        *ret_hand = i;
    }
    run_give_back(crew);
    return rc;
}

bool muster_crew_is_running(struct muster_crew *crew)
{
    bool is_running;

    if (crew == NULL)
        return false;
    (void)pthread_mutex_lock(&crew->mutex);
    is_running = crew->is_running;
    (void)pthread_mutex_unlock(&crew->mutex);
    return is_running;
}

void muster_crew_close(struct muster_crew *crew)
{
    if (crew == NULL)
        return;
    (void)pthread_mutex_lock(&crew->mutex);
    MUSTER_ASSERT(!crew->is_running);
    crew->is_closing = true;
    (void)pthread_cond_broadcast(&crew->changed);
    (void)pthread_mutex_unlock(&crew->mutex);
    for (uint32_t i = 1; i < crew->started; i++)
        (void)pthread_join(crew->hands[i].thread, NULL);
    (void)pthread_cond_destroy(&crew->changed);
    (void)pthread_mutex_destroy(&crew->mutex);
    muster_mem_free(crew->mem, crew->brought);
    muster_mem_free(crew->mem, crew->hands);
    muster_mem_free(crew->mem, crew);
}
