/* A libnccl.so.2 without devices: ranks meet in a file of shared memory, in one process or in many.
 * Compiled once per version that it plays: -DFAKE_NCCL_VERSION=23007. */
#include "fake_nccl.h"
#include "fake_knobs.h"

#include <limits.h>
#include <pthread.h>
#include <unistd.h>

static struct knob knobs[KNOBS_MAX] = {
    {"rank", -1},
    {"polls", 0},
    {"init_fails", 0},
    {"init_hangs", 0},
    {"init_blocks", 0},
    {"id_fails", 0},
    {"id_blocks", 0},
    {"issue_fails", 0},
    {"error_after", 0},
    {"abort_blocks", 0},
    {"destroy_blocks", 0},
    {"finalize_hangs", 0},
    {"finalize_fails", 0},
    {"revoke_hangs", 0},
    {"revoke_fails", 0},
    {"shrink_fails", 0},
    {"shrink_blocks", 0},
    {"shrink_late", 0},
    {"grow_fails", 0},
    {"version", FAKE_NCCL_VERSION},
    {"misuse", 0},
    {"live", 0},
    {"inits", 0},
    {"shrinks", 0},
    {"grows", 0},
    {"aborts", 0},
    {"revokes", 0},
    {"destroys", 0},
    {"named", 0},
    {"aborting", 0},
    {"aborting_max", 0},
    {"issued", 0},
    {"blocked", 0},
    {"tells_cause", 0},
    {NULL, 0},
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static _Thread_local int group_depth;
static _Thread_local struct fake_job *group_job;
static _Thread_local struct fake_comm *group_comm;
static _Thread_local struct fake_stream *group_stream;

__attribute__((constructor)) static void start(void)
{
    knobs_from_environment("FAKE_NCCL_");
}

void fake_nccl_set(const char *name, long value)
{
    pthread_mutex_lock(&mutex);
    atomic_store(&knob_find(name)->value, value);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

long fake_nccl_get(const char *name)
{
    return knob_get(name);
}

static int abort_misuse(void)
{
    knob_add("misuse", 1);
    return INVALID_ARGUMENT;
}

static bool concerns_rank(int rank)
{
    long chosen = knob_get("rank");

    return chosen < 0 || chosen == rank;
}

static bool fault_happens(const char *fault, int rank)
{
    return concerns_rank(rank) && knob_take(fault);
}

/* As long as the knob is not zero. */
static void block_rank(const char *fault, int rank)
{
    if (!concerns_rank(rank))
        return;
    pthread_mutex_lock(&mutex);
    knob_add("blocked", 1);
    while (knob_get(fault) != 0)
        pthread_cond_wait(&changed, &mutex);
    knob_add("blocked", -1);
    pthread_mutex_unlock(&mutex);
}

/* --- Communicators --- */

static bool is_live(const struct fake_comm *comm)
{
    if (comm != NULL && comm->magic == COMM_MAGIC && fake_cuda_has_context())
        return true;
    (void)abort_misuse();
    return false;
}

static bool is_config_fine(const struct config *config)
{
    size_t known = FAKE_NCCL_VERSION >= 22703 ? 72 : 48;

    if (config == NULL || config->magic != 0xcafebeefu || config->blocking != 0 ||
        config->size > known || config->version > (unsigned)FAKE_NCCL_VERSION ||
        config->version < 21800 || config->split_share != INT_MIN) {
        (void)abort_misuse();
        return false;
    }
    if (config->size >= 72 && config->name != NULL)
        knob_add("named", 1);
    return true;
}

static struct fake_comm *comm_new(const char *name, int count, int rank)
{
    struct fake_comm *comm = calloc(1, sizeof(*comm));

    comm->magic = COMM_MAGIC;
    comm->count = count;
    comm->rank = rank;
    snprintf(comm->name, sizeof(comm->name), "%s", name);
    comm->call = CALL_INIT;
    comm->polls = knob_get("polls");
    comm->is_hanging = fault_happens("init_hangs", rank);
    if (fault_happens("init_fails", rank))
        comm->error = SYSTEM_ERROR;
    else if (!comm->is_hanging && !fake_segment_open(comm))
        comm->error = SYSTEM_ERROR;
    knob_add("live", 1);
    return comm;
}

static void comm_free(struct fake_comm *comm)
{
    if (comm->child != NULL)
        comm_free(comm->child);
    pthread_mutex_lock(&mutex);
    atomic_store(&comm->is_stopped, true);
    while (comm->job_count > 0)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    fake_segment_close(comm);
    comm->magic = 0;
    free(comm);
    knob_add("live", -1);
}

static int begin_call(struct fake_comm *comm, enum fake_call call)
{
    comm->call = call;
    comm->polls = knob_get("polls");
    return comm->polls > 0 ? IN_PROGRESS : SUCCESS;
}

FAKE_API int ncclGetVersion(int *version)
{
    *version = (int)knob_get("version");
    return SUCCESS;
}

FAKE_API const char *ncclGetErrorString(int result)
{
    return result == SYSTEM_ERROR   ? "unhandled system error"
           : result == REMOTE_ERROR ? "remote process exited or there was a network error"
                                    : "fake error";
}

FAKE_API const char *ncclGetLastError(struct fake_comm *comm)
{
    (void)comm;
    return knob_get("tells_cause") != 0
               ? "Call to ibv_create_cq failed with error Cannot allocate memory: raise the limit "
                 "of "
                 "locked memory of this process (ulimit -l) on gpu-node-0123"
               : "";
}

FAKE_API int ncclGetUniqueId(struct unique_id *id)
{
    static atomic_uint next;

    block_rank("id_blocks", 0);
    if (knob_take("id_fails"))
        return SYSTEM_ERROR;
    memset(id, 0, sizeof(*id));
    snprintf(id->text, sizeof(id->text), "%d-%u-%d", (int)getpid(), atomic_fetch_add(&next, 1),
             FAKE_NCCL_VERSION);
    return SUCCESS;
}

FAKE_API int ncclCommInitRankConfig(struct fake_comm **ret_comm, int count, struct unique_id id,
                                    int rank, struct config *config)
{
    if (!fake_cuda_has_context() || !is_config_fine(config) || rank >= count)
        return abort_misuse();
    block_rank("init_blocks", rank);
    *ret_comm = comm_new(id.text, count, rank);
    knob_add("inits", 1);
    return IN_PROGRESS;
}

static bool is_arrived(struct fake_comm *comm)
{
    if (comm->is_hanging || !fake_segment_is_complete(comm))
        return false;
    if (comm->polls > 0) {
        comm->polls--;
        return false;
    }
    return true;
}

/* As the real one: the parent says how its child stands, which is written when it is up. */
static int poll_child(struct fake_comm *comm)
{
    struct fake_comm *child = comm->child;
    int result = child->error;

    if (result == SUCCESS && !is_arrived(child))
        return IN_PROGRESS;
    comm->call = CALL_NONE;
    comm->child = NULL;
    child->call = CALL_NONE;
    if (result != SUCCESS)
        comm_free(child);
    *comm->ret_child = result == SUCCESS ? child : NULL;
    return result;
}

#if FAKE_NCCL_VERSION >= 22703
static int make_child(struct fake_comm *comm, struct fake_comm *child, struct fake_comm **ret_child)
{
    comm->call = CALL_CHILD;
    comm->child = child;
    comm->ret_child = ret_child;
    *ret_child = NULL;
    return IN_PROGRESS;
}
#endif

FAKE_API int ncclCommGetAsyncError(struct fake_comm *comm, int *result)
{
    if (!is_live(comm))
        return INVALID_ARGUMENT;
    if (comm->call == CALL_CHILD) {
        *result = poll_child(comm);
        return SUCCESS;
    }
    *result = comm->error;
    if (comm->error != SUCCESS)
        return SUCCESS;
    if (comm->call == CALL_INIT)
        *result = is_arrived(comm) ? SUCCESS : IN_PROGRESS;
    else if (comm->is_hanging || comm->polls-- > 0)
        *result = IN_PROGRESS;
    if (*result == SUCCESS && comm->call == CALL_REVOKE) {
        pthread_mutex_lock(&mutex);
        *result = comm->job_count > 0 ? IN_PROGRESS : SUCCESS;
        pthread_mutex_unlock(&mutex);
        if (*result == SUCCESS)
            atomic_store(&comm->is_stopped, false);
    }
    if (*result == SUCCESS)
        comm->call = CALL_NONE;
    return SUCCESS;
}

FAKE_API int ncclCommFinalize(struct fake_comm *comm)
{
    if (!is_live(comm) || comm->call != CALL_NONE || comm->is_revoked)
        return abort_misuse();
    if (fault_happens("finalize_fails", comm->rank))
        return INTERNAL_ERROR;
    comm->is_hanging = fault_happens("finalize_hangs", comm->rank);
    comm->is_finalized = true;
    (void)begin_call(comm, CALL_OTHER);
    return comm->is_hanging || comm->polls > 0 ? IN_PROGRESS : SUCCESS;
}

FAKE_API int ncclCommDestroy(struct fake_comm *comm)
{
    if (!is_live(comm) || !comm->is_finalized)
        return abort_misuse();
    block_rank("destroy_blocks", comm->rank);
    knob_add("destroys", 1);
    comm_free(comm);
    return SUCCESS;
}

FAKE_API int ncclCommAbort(struct fake_comm *comm)
{
    long at_once;

    if (!is_live(comm))
        return INVALID_ARGUMENT;
    pthread_mutex_lock(&mutex);
    at_once = atomic_fetch_add(&knob_find("aborting")->value, 1) + 1;
    if (at_once > knob_get("aborting_max"))
        atomic_store(&knob_find("aborting_max")->value, at_once);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    block_rank("abort_blocks", comm->rank);
    knob_add("aborts", 1);
    knob_add("aborting", -1);
    comm_free(comm);
    return SUCCESS;
}

#if FAKE_NCCL_VERSION >= 22807
FAKE_API int ncclCommRevoke(struct fake_comm *comm, int flags)
{
    if (!is_live(comm) || flags != 0 || comm->is_revoked || comm->is_finalized)
        return abort_misuse();
    if (fault_happens("revoke_fails", comm->rank))
        return INTERNAL_ERROR;
    knob_add("revokes", 1);
    comm->is_revoked = true;
    atomic_store(&comm->is_stopped, true);
    comm->is_hanging = fault_happens("revoke_hangs", comm->rank);
    (void)begin_call(comm, CALL_REVOKE);
    return IN_PROGRESS;
}
#endif

#if FAKE_NCCL_VERSION >= 22703
static bool is_excluded(const int *excluded, int count, int rank)
{
    for (int i = 0; i < count; i++)
        if (excluded[i] == rank)
            return true;
    return false;
}

FAKE_API int ncclCommShrink(struct fake_comm *parent, int *excluded, int count,
                            struct fake_comm **ret_comm, struct config *config, int flags)
{
    int rank = 0;
    size_t length;
    char name[NAME_BYTES];

    if (!is_live(parent) || !is_config_fine(config) || flags != 0 || count <= 0 ||
        count >= parent->count || parent->call != CALL_NONE || parent->job_count != 0 ||
        is_excluded(excluded, count, parent->rank))
        return abort_misuse();
    rank = parent->rank;
    block_rank("shrink_blocks", rank);
    if (knob_get("shrink_late") != 0 || fault_happens("shrink_fails", rank))
        return REMOTE_ERROR;
    rank = 0;
    for (int i = 0; i < parent->rank; i++)
        rank += !is_excluded(excluded, count, i);
    length = (size_t)snprintf(name, sizeof(name), "%.100s", parent->name);
    for (int i = 0; i < count && length + 8 < sizeof(name); i++)
        length += (size_t)snprintf(name + length, sizeof(name) - length, "-x%d", excluded[i]);
    knob_add("shrinks", 1);
    return make_child(parent, comm_new(name, parent->count - count, rank), ret_comm);
}
#endif

#if FAKE_NCCL_VERSION >= 22902
static void name_growth(const struct fake_comm *parent, char *name, size_t size)
{
    snprintf(name, size, "%.100s-g%d", parent->name, parent->growth + 1);
}

FAKE_API int ncclCommGetUniqueId(struct fake_comm *comm, struct unique_id *id)
{
    if (!is_live(comm) || comm->call != CALL_NONE || comm->is_revoked)
        return abort_misuse();
    block_rank("id_blocks", comm->rank);
    memset(id, 0, sizeof(*id));
    name_growth(comm, id->text, sizeof(id->text));
    return SUCCESS;
}

FAKE_API int ncclCommGrow(struct fake_comm *parent, int count, const struct unique_id *id, int rank,
                          struct fake_comm **ret_comm, struct config *config)
{
    char name[NAME_BYTES];

    if (!is_config_fine(config) || (parent == NULL && (id == NULL || rank < 0)))
        return abort_misuse();
    if (parent == NULL) {
        *ret_comm = comm_new(id->text, count, rank);
    } else {
        if (!is_live(parent) || rank != -1 || count <= parent->count || parent->is_revoked ||
            parent->call != CALL_NONE)
            return abort_misuse();
        if (fault_happens("grow_fails", parent->rank))
            return REMOTE_ERROR;
        name_growth(parent, name, sizeof(name));
        parent->growth++;
        knob_add("grows", 1);
        return make_child(parent, comm_new(name, count, parent->rank), ret_comm);
    }
    knob_add("grows", 1);
    return IN_PROGRESS;
}
#endif

/* --- Operations --- */

static void on_job_end(struct fake_comm *comm)
{
    pthread_mutex_lock(&mutex);
    comm->job_count--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void run_job(void *data)
{
    struct fake_job *job = data;
    struct fake_comm *comm = job->comm;

    while (job->is_hanging && !atomic_load(&comm->is_stopped))
        usleep(100);
    if (!job->is_hanging && fake_job_exchange(job))
        fake_job_finish(job);
    fake_job_free(job);
    on_job_end(comm);
}

static int comm_submit(struct fake_comm *comm, struct fake_job *job, struct fake_stream *stream)
{
    long limit = knob_get("error_after");

    if (!is_live(comm) || comm->call != CALL_NONE || comm->is_revoked || comm->is_finalized) {
        fake_job_free(job);
        return abort_misuse();
    }
    if (fault_happens("issue_fails", comm->rank)) {
        fake_job_free(job);
        comm->error = INTERNAL_ERROR;
        return INTERNAL_ERROR;
    }
    job->comm = comm;
    comm->op_count++;
    if (limit > 0 && concerns_rank(comm->rank) && comm->op_count >= limit) {
        comm->error_due = REMOTE_ERROR;
        job->is_hanging = true;
    }
    pthread_mutex_lock(&mutex);
    comm->job_count++;
    pthread_mutex_unlock(&mutex);
    fake_cuda_enqueue(stream, run_job, job);
    knob_add("issued", 1);
    if (comm->error_due != SUCCESS)
        comm->error = comm->error_due;
    return begin_call(comm, CALL_OTHER) == IN_PROGRESS ? IN_PROGRESS
                                                       : (comm->call = CALL_NONE, SUCCESS);
}

/* Everybody's whole input to everybody. */
static struct fake_job *job_all(struct fake_comm *comm, const void *send, size_t bytes,
                                bool is_sent)
{
    struct fake_job *job = fake_job_new(comm->count);

    for (int peer = 0; peer < comm->count && is_sent; peer++)
        fake_job_send(job, peer, send, bytes);
    return job;
}

FAKE_API int ncclAllReduce(const void *send, void *receive, size_t count, int type, int reduction,
                           struct fake_comm *comm, struct fake_stream *stream)
{
    size_t bytes = count * fake_type_bytes(type);
    struct fake_job *job = job_all(comm, send, bytes, true);

    fake_job_reduce(job, receive, 0, count, type, reduction);
    return comm_submit(comm, job, stream);
}

FAKE_API int ncclReduce(const void *send, void *receive, size_t count, int type, int reduction,
                        int root, struct fake_comm *comm, struct fake_stream *stream)
{
    size_t bytes = count * fake_type_bytes(type);
    struct fake_job *job = fake_job_new(comm->count);

    fake_job_send(job, root, send, bytes);
    if (comm->rank == root)
        fake_job_reduce(job, receive, 0, count, type, reduction);
    return comm_submit(comm, job, stream);
}

FAKE_API int ncclReduceScatter(const void *send, void *receive, size_t count, int type,
                               int reduction, struct fake_comm *comm, struct fake_stream *stream)
{
    size_t bytes = count * fake_type_bytes(type);
    struct fake_job *job = fake_job_new(comm->count);

    for (int peer = 0; peer < comm->count; peer++)
        fake_job_send(job, peer, (const char *)send + (size_t)peer * bytes, bytes);
    fake_job_reduce(job, receive, 0, count, type, reduction);
    return comm_submit(comm, job, stream);
}

FAKE_API int ncclBroadcast(const void *send, void *receive, size_t count, int type, int root,
                           struct fake_comm *comm, struct fake_stream *stream)
{
    size_t bytes = count * fake_type_bytes(type);
    struct fake_job *job = job_all(comm, send, bytes, comm->rank == root);

    fake_job_receive(job, root, receive, bytes);
    return comm_submit(comm, job, stream);
}

FAKE_API int ncclAllGather(const void *send, void *receive, size_t count, int type,
                           struct fake_comm *comm, struct fake_stream *stream)
{
    size_t bytes = count * fake_type_bytes(type);
    struct fake_job *job = job_all(comm, send, bytes, true);

    for (int peer = 0; peer < comm->count; peer++)
        fake_job_receive(job, peer, (char *)receive + (size_t)peer * bytes, bytes);
    return comm_submit(comm, job, stream);
}

#if FAKE_NCCL_VERSION >= 22803
FAKE_API int ncclAlltoAll(const void *send, void *receive, size_t count, int type,
                          struct fake_comm *comm, struct fake_stream *stream)
{
    size_t bytes = count * fake_type_bytes(type);
    struct fake_job *job = fake_job_new(comm->count);

    for (int peer = 0; peer < comm->count; peer++) {
        fake_job_send(job, peer, (const char *)send + (size_t)peer * bytes, bytes);
        fake_job_receive(job, peer, (char *)receive + (size_t)peer * bytes, bytes);
    }
    return comm_submit(comm, job, stream);
}
#endif

static struct fake_job *job_of_group(struct fake_comm *comm, struct fake_stream *stream)
{
    if (group_job == NULL)
        group_job = fake_job_new(comm->count);
    group_comm = comm;
    group_stream = stream;
    return group_job;
}

FAKE_API int ncclSend(const void *send, size_t count, int type, int peer, struct fake_comm *comm,
                      struct fake_stream *stream)
{
    if (group_depth == 0 || peer >= comm->count)
        return abort_misuse();
    fake_job_send(job_of_group(comm, stream), peer, send, count * fake_type_bytes(type));
    return SUCCESS;
}

FAKE_API int ncclRecv(void *receive, size_t count, int type, int peer, struct fake_comm *comm,
                      struct fake_stream *stream)
{
    if (group_depth == 0 || peer >= comm->count)
        return abort_misuse();
    fake_job_receive(job_of_group(comm, stream), peer, receive, count * fake_type_bytes(type));
    return SUCCESS;
}

FAKE_API int ncclGroupStart(void)
{
    group_depth++;
    return SUCCESS;
}

FAKE_API int ncclGroupEnd(void)
{
    struct fake_job *job = group_job;

    group_job = NULL;
    if (--group_depth > 0 || job == NULL)
        return SUCCESS;
    return comm_submit(group_comm, job, group_stream);
}
