/* libnccl.so.2 by dlopen: prototypes, values and the layout of its configuration (nccl.h) by version. ncclResult_t
 * becomes muster_rc here and nowhere else. Functions newer than 2.18 may be missing; features_of says which. */
#include "collective/gpu/nccl_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>

#define LIBRARY_DEFAULT "libnccl.so.2"
/* 2.18.0: the first 48 bytes of the configuration below are its layout. */
#define VERSION_MIN 21800
/* 2.27.3: commName in the configuration. */
#define VERSION_NAMES 22703

/* ncclResult_t */
enum {
    NCCL_SUCCESS = 0,
    NCCL_CUDA_ERROR,
    NCCL_SYSTEM_ERROR,
    NCCL_INTERNAL_ERROR,
    NCCL_INVALID_ARGUMENT,
    NCCL_INVALID_USAGE,
    NCCL_REMOTE_ERROR,
    NCCL_IN_PROGRESS,
    NCCL_TIMEOUT, /* 2.30 */
};

enum { NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG };

#define CONFIG_MAGIC      0xcafebeefu
#define CONFIG_UNDEF      INT_MIN
#define CONFIG_BYTES_2_18 48
#define CONFIG_BYTES_2_27 72
#define NO_FLAGS          0

/* ncclConfig_t as of 2.27; older libraries get its first 48 bytes. */
struct config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, ctas_min, ctas_max;
    const char *net_name;
    int split_share, traffic_class;
    const char *name;
    int collnet_enable, cta_policy, shrink_share, nvls_ctas;
};
_Static_assert(offsetof(struct config, traffic_class) == 44, "layout of 2.18 and 2.26");
_Static_assert(sizeof(struct config) == CONFIG_BYTES_2_27, "layout of 2.27");

typedef struct muster_nccl_comm *comm_pointer;
typedef struct muster_cuda_stream *stream_pointer;

struct muster_nccl {
    struct muster_mem *mem;
    int version;
    unsigned features;
    int (*get_version)(int *version);
    int (*get_id)(struct muster_nccl_id *id);
    int (*init)(comm_pointer *comm, int count, struct muster_nccl_id id, int rank,
                struct config *config);
    int (*async_error)(comm_pointer comm, int *result);
    int (*finalize)(comm_pointer comm);
    int (*destroy)(comm_pointer comm);
    int (*abort)(comm_pointer comm);
    const char *(*error_string)(int result);
    const char *(*last_error)(comm_pointer comm);
    int (*all_reduce)(const void *send, void *receive, size_t count, int type, int reduction,
                      comm_pointer comm, stream_pointer stream);
    int (*reduce)(const void *send, void *receive, size_t count, int type, int reduction, int root,
                  comm_pointer comm, stream_pointer stream);
    int (*broadcast)(const void *send, void *receive, size_t count, int type, int root,
                     comm_pointer comm, stream_pointer stream);
    int (*reduce_scatter)(const void *send, void *receive, size_t count, int type, int reduction,
                          comm_pointer comm, stream_pointer stream);
    int (*all_gather)(const void *send, void *receive, size_t count, int type, comm_pointer comm,
                      stream_pointer stream);
    int (*send)(const void *send, size_t count, int type, int peer, comm_pointer comm,
                stream_pointer stream);
    int (*receive)(void *receive, size_t count, int type, int peer, comm_pointer comm,
                   stream_pointer stream);
    int (*group_start)(void);
    int (*group_end)(void);
    /* may be NULL: */
    int (*revoke)(comm_pointer comm, int flags);
    int (*shrink)(comm_pointer comm, int *excluded, int count, comm_pointer *ret_comm,
                  struct config *config, int flags);
    int (*get_grow_id)(comm_pointer comm, struct muster_nccl_id *id);
    int (*grow)(comm_pointer comm, int count, const struct muster_nccl_id *id, int rank,
                comm_pointer *ret_comm, struct config *config);
    int (*all_to_all)(const void *send, void *receive, size_t count, int type, comm_pointer comm,
                      stream_pointer stream);
};

static const struct symbol {
    const char *name;
    size_t offset;
    bool is_needed;
} symbols[] = {
    {"ncclGetVersion", offsetof(struct muster_nccl, get_version), true},
    {"ncclGetUniqueId", offsetof(struct muster_nccl, get_id), true},
    {"ncclCommInitRankConfig", offsetof(struct muster_nccl, init), true},
    {"ncclCommGetAsyncError", offsetof(struct muster_nccl, async_error), true},
    {"ncclCommFinalize", offsetof(struct muster_nccl, finalize), true},
    {"ncclCommDestroy", offsetof(struct muster_nccl, destroy), true},
    {"ncclCommAbort", offsetof(struct muster_nccl, abort), true},
    {"ncclGetErrorString", offsetof(struct muster_nccl, error_string), true},
    {"ncclGetLastError", offsetof(struct muster_nccl, last_error), true},
    {"ncclAllReduce", offsetof(struct muster_nccl, all_reduce), true},
    {"ncclReduce", offsetof(struct muster_nccl, reduce), true},
    {"ncclBroadcast", offsetof(struct muster_nccl, broadcast), true},
    {"ncclReduceScatter", offsetof(struct muster_nccl, reduce_scatter), true},
    {"ncclAllGather", offsetof(struct muster_nccl, all_gather), true},
    {"ncclSend", offsetof(struct muster_nccl, send), true},
    {"ncclRecv", offsetof(struct muster_nccl, receive), true},
    {"ncclGroupStart", offsetof(struct muster_nccl, group_start), true},
    {"ncclGroupEnd", offsetof(struct muster_nccl, group_end), true},
    {"ncclCommRevoke", offsetof(struct muster_nccl, revoke), false},
    {"ncclCommShrink", offsetof(struct muster_nccl, shrink), false},
    {"ncclCommGetUniqueId", offsetof(struct muster_nccl, get_grow_id), false},
    {"ncclCommGrow", offsetof(struct muster_nccl, grow), false},
    {"ncclAlltoAll", offsetof(struct muster_nccl, all_to_all), false},
};

/* --- Codes --- */

static enum muster_rc rc_of(int result)
{
    switch (result) {
    case NCCL_SUCCESS:
        return MUSTER_OK;
    case NCCL_INVALID_ARGUMENT:
    case NCCL_INVALID_USAGE:
        return MUSTER_INVALID_ARGUMENT;
    case NCCL_SYSTEM_ERROR:
    case NCCL_REMOTE_ERROR:
    case NCCL_TIMEOUT:
        return MUSTER_UNAVAILABLE;
    default:
        return MUSTER_INTERNAL;
    }
}

static enum muster_rc check_result(const struct muster_nccl *nccl, int result, const char *what,
                                   struct muster_error *ret_error)
{
    const char *text, *detail;

    if (result == NCCL_SUCCESS)
        return MUSTER_OK;
    text = nccl->error_string(result);
    detail = nccl->last_error(NULL);         /* the communicator is not looked at (nccl.h) */
    if (detail != NULL && detail[0] != '\0') /* it names the cause, the other only its kind */
        return muster_error_set(ret_error, rc_of(result), "%s: NCCL error %d: %s (%s)", what,
                                result, detail, text != NULL ? text : "unknown");
    return muster_error_set(ret_error, rc_of(result), "%s: NCCL error %d: %s", what, result,
                            text != NULL ? text : "unknown");
}

/* Communicators are made with blocking = 0, so a call may answer that it goes on inside the library. */
static enum muster_rc check_pending(const struct muster_nccl *nccl, int result, const char *what,
                                    bool *ret_is_pending, struct muster_error *ret_error)
{
    *ret_is_pending = result == NCCL_IN_PROGRESS;
    return *ret_is_pending ? MUSTER_OK : check_result(nccl, result, what, ret_error);
}

/* --- Opening --- */

/* The library is never closed: its own threads, and a call that never returns, may run its code to the end of the
 * process. */
static enum muster_rc load_library(struct muster_nccl *nccl, const char *library,
                                   struct muster_error *ret_error)
{
    const char *path = library != NULL ? library : LIBRARY_DEFAULT;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (handle == NULL) {
        const char *why = dlerror();

        return muster_error_set(ret_error, MUSTER_UNAVAILABLE, "no NCCL: %s",
                                why != NULL ? why : path);
    }
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *function = dlsym(handle, symbols[i].name);

        if (function == NULL && symbols[i].is_needed)
            return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED,
                                    "NCCL (%s) is too old: it has no %s", path, symbols[i].name);
        memcpy((char *)nccl + symbols[i].offset, &function, sizeof(function));
    }
    return MUSTER_OK;
}

static enum muster_rc check_version(struct muster_nccl *nccl, struct muster_error *ret_error)
{
    enum muster_rc rc = check_result(nccl, nccl->get_version(&nccl->version), "version", ret_error);

    if (rc == MUSTER_OK && nccl->version < VERSION_MIN)
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED,
                                "NCCL's version code is %d, at least %d (2.18.0) is needed",
                                nccl->version, VERSION_MIN);
    return rc;
}

static unsigned features_of(const struct muster_nccl *nccl)
{
    return (nccl->shrink != NULL ? MUSTER_NCCL_SHRINK : 0u) |
           (nccl->revoke != NULL ? MUSTER_NCCL_REVOKE : 0u) |
           (nccl->grow != NULL && nccl->get_grow_id != NULL ? MUSTER_NCCL_GROW : 0u) |
           (nccl->all_to_all != NULL ? MUSTER_NCCL_ALL_TO_ALL : 0u) |
           (nccl->version >= VERSION_NAMES ? MUSTER_NCCL_NAMES : 0u);
}

enum muster_rc muster_nccl_open(struct muster_mem *mem, const char *library,
                                struct muster_nccl **ret_nccl, struct muster_error *ret_error)
{
    struct muster_nccl *nccl = muster_mem_alloc_zero(mem, 1, sizeof(*nccl));
    enum muster_rc rc;

    if (nccl == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    nccl->mem = mem;
    rc = load_library(nccl, library, ret_error);
    if (rc == MUSTER_OK)
        rc = check_version(nccl, ret_error);
    if (rc != MUSTER_OK) {
        muster_mem_free(mem, nccl);
        return rc;
    }
    nccl->features = features_of(nccl);
    *ret_nccl = nccl;
    return MUSTER_OK;
}

void muster_nccl_close(struct muster_nccl *nccl)
{
    if (nccl != NULL)
        muster_mem_free(nccl->mem, nccl);
}

int muster_nccl_version(const struct muster_nccl *nccl)
{
    return nccl->version;
}

unsigned muster_nccl_features(const struct muster_nccl *nccl)
{
    return nccl->features;
}

/* --- Types and reductions --- */

/* ncclDataType_t, by the type. What NCCL lacks is moved as another type of its size (u8, f16), which copies its
 * bits; muster_nccl_check keeps it from being reduced. */
static int type_of(enum muster_dtype dtype)
{
    static const int types[] = {
        [MUSTER_I8] = 0,  [MUSTER_U8] = 1,      [MUSTER_I32] = 2,     [MUSTER_U32] = 3,
        [MUSTER_I64] = 4, [MUSTER_U64] = 5,     [MUSTER_F16] = 6,     [MUSTER_F32] = 7,
        [MUSTER_F64] = 8, [MUSTER_BF16] = 9,    [MUSTER_BOOL] = 1,    [MUSTER_I16] = 6,
        [MUSTER_U16] = 6, [MUSTER_F8_E4M3] = 1, [MUSTER_F8_E5M2] = 1,
    };

    return types[dtype];
}

static bool find_reduction(enum muster_reduction reduction, int *ret_reduction)
{
    switch (reduction) {
    case MUSTER_SUM:
        *ret_reduction = NCCL_SUM;
        return true;
    case MUSTER_MEAN:
        *ret_reduction = NCCL_AVG;
        return true;
    case MUSTER_MIN:
        *ret_reduction = NCCL_MIN;
        return true;
    case MUSTER_MAX:
        *ret_reduction = NCCL_MAX;
        return true;
    case MUSTER_PROD:
        *ret_reduction = NCCL_PROD;
        return true;
    default:
        return false;
    }
}

enum muster_rc muster_nccl_check(enum muster_device_kind kind, enum muster_dtype dtype,
                                 enum muster_reduction reduction, struct muster_error *ret_error)
{
    bool has_reduction = kind == MUSTER_DEVICE_ALL_REDUCE || kind == MUSTER_DEVICE_REDUCE ||
                         kind == MUSTER_DEVICE_REDUCE_SCATTER;
    enum muster_rc rc;
    int unused;

    if (muster_dtype_bytes(dtype) == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "no such type");
    if (!has_reduction)
        return MUSTER_OK;
    rc = muster_reduction_check(dtype, reduction, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (!find_reduction(reduction, &unused))
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED,
                                "NCCL has no %s (it has sum, mean, min, max, prod): reduce in host "
                                "memory",
                                muster_reduction_name(reduction));
    if (dtype == MUSTER_I16 || dtype == MUSTER_U16)
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED,
                                "NCCL has no %s: reduce i32 or u32, or in host memory",
                                muster_dtype_name(dtype));
    if (dtype == MUSTER_BOOL)
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED,
                                "NCCL has no bool: reduce u8 that are 0 or 1, with min or max, or "
                                "in host memory");
    return MUSTER_OK;
}

/* --- Communicators --- */

/* Nothing newer than what is set: the library takes its own defaults for the rest. */
static struct config config_of(const struct muster_nccl *nccl, const char *name)
{
    bool is_named = name != NULL && (nccl->features & MUSTER_NCCL_NAMES) != 0;

    return (struct config){
        .size = is_named ? CONFIG_BYTES_2_27 : CONFIG_BYTES_2_18,
        .magic = CONFIG_MAGIC,
        .version = is_named ? VERSION_NAMES : VERSION_MIN,
        .blocking = 0,
        .cga_cluster_size = CONFIG_UNDEF,
        .ctas_min = CONFIG_UNDEF,
        .ctas_max = CONFIG_UNDEF,
        .split_share = CONFIG_UNDEF,
        .traffic_class = CONFIG_UNDEF,
        .name = name,
        .collnet_enable = CONFIG_UNDEF,
        .cta_policy = CONFIG_UNDEF,
        .shrink_share = CONFIG_UNDEF,
        .nvls_ctas = CONFIG_UNDEF,
    };
}

enum muster_rc muster_nccl_make_id(const struct muster_nccl *nccl, struct muster_nccl_id *ret_id,
                                   struct muster_error *ret_error)
{
    return check_result(nccl, nccl->get_id(ret_id), "unique id", ret_error);
}

enum muster_rc muster_nccl_init(const struct muster_nccl *nccl,
                                const struct muster_nccl_place *place,
                                const struct muster_nccl_id *id, struct muster_nccl_comm **ret_comm,
                                bool *ret_is_pending, struct muster_error *ret_error)
{
    struct config config = config_of(nccl, place->name);
    int result = nccl->init(ret_comm, (int)place->count, *id, (int)place->rank, &config);

    return check_pending(nccl, result, "new communicator", ret_is_pending, ret_error);
}

enum muster_rc muster_nccl_shrink(const struct muster_nccl *nccl, struct muster_nccl_comm *parent,
                                  int *excluded, uint32_t count, const char *name,
                                  struct muster_nccl_comm **ret_comm, bool *ret_is_pending,
                                  struct muster_error *ret_error)
{
    struct config config = config_of(nccl, name);
    int result = nccl->shrink(parent, excluded, (int)count, ret_comm, &config, NO_FLAGS);

    return check_pending(nccl, result, "shrunk communicator", ret_is_pending, ret_error);
}

enum muster_rc muster_nccl_make_grow_id(const struct muster_nccl *nccl,
                                        struct muster_nccl_comm *parent,
                                        struct muster_nccl_id *ret_id,
                                        struct muster_error *ret_error)
{
    return check_result(nccl, nccl->get_grow_id(parent, ret_id), "id of a growth", ret_error);
}

enum muster_rc muster_nccl_grow(const struct muster_nccl *nccl, struct muster_nccl_comm *parent,
                                const struct muster_nccl_place *place,
                                const struct muster_nccl_id *id, struct muster_nccl_comm **ret_comm,
                                bool *ret_is_pending, struct muster_error *ret_error)
{
    struct config config = config_of(nccl, place->name);
    int rank = parent == NULL ? (int)place->rank : -1; /* old members keep theirs */
    int result = nccl->grow(parent, (int)place->count, id, rank, ret_comm, &config);

    return check_pending(nccl, result, "grown communicator", ret_is_pending, ret_error);
}

enum muster_rc muster_nccl_poll(const struct muster_nccl *nccl, struct muster_nccl_comm *comm,
                                bool *ret_is_pending, struct muster_error *ret_error)
{
    int state = NCCL_SUCCESS;
    enum muster_rc rc = check_result(nccl, nccl->async_error(comm, &state), "state", ret_error);

    *ret_is_pending = false;
    if (rc != MUSTER_OK)
        return rc;
    return check_pending(nccl, state, "communicator", ret_is_pending, ret_error);
}

enum muster_rc muster_nccl_revoke(const struct muster_nccl *nccl, struct muster_nccl_comm *comm,
                                  bool *ret_is_pending, struct muster_error *ret_error)
{
    return check_pending(nccl, nccl->revoke(comm, NO_FLAGS), "revoke", ret_is_pending, ret_error);
}

enum muster_rc muster_nccl_finalise(const struct muster_nccl *nccl, struct muster_nccl_comm *comm,
                                    bool *ret_is_pending, struct muster_error *ret_error)
{
    return check_pending(nccl, nccl->finalize(comm), "finalise", ret_is_pending, ret_error);
}

enum muster_rc muster_nccl_destroy(const struct muster_nccl *nccl, struct muster_nccl_comm *comm,
                                   struct muster_error *ret_error)
{
    return check_result(nccl, nccl->destroy(comm), "destroy", ret_error);
}

enum muster_rc muster_nccl_abort(const struct muster_nccl *nccl, struct muster_nccl_comm *comm,
                                 struct muster_error *ret_error)
{
    return check_result(nccl, nccl->abort(comm), "abort", ret_error);
}

/* --- Operations --- */

/* Between start and end of a group a call may say that the communicator is busy with it. */
static bool is_taken(int result)
{
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS;
}

/* All sends and receives in one group of calls: one by one they would wait for each other. group_end is called in any
 * case, for a group that is left open takes all later calls of the thread in. */
static int exchange_parts(const struct muster_nccl *nccl, struct muster_nccl_comm *comm,
                          const struct muster_nccl_work *work, struct muster_cuda_stream *stream)
{
    size_t bytes = (size_t)work->count * muster_dtype_bytes(work->dtype);
    int type = type_of(work->dtype), result = nccl->group_start(), end;

    if (result != NCCL_SUCCESS)
        return result;
    for (uint32_t i = 0; i < work->member_count && is_taken(result); i++) {
        result = nccl->send((const char *)work->input + i * bytes, work->count, type, (int)i, comm,
                            stream);
        if (is_taken(result))
            result = nccl->receive((char *)work->output + i * bytes, work->count, type, (int)i,
                                   comm, stream);
    }
    end = nccl->group_end();
    return is_taken(result) ? end : result;
}

static int send_receive(const struct muster_nccl *nccl, struct muster_nccl_comm *comm,
                        const struct muster_nccl_work *work, struct muster_cuda_stream *stream)
{
    int type = type_of(work->dtype), result = nccl->group_start(), end;

    if (result != NCCL_SUCCESS)
        return result;
    if (work->to != MUSTER_DEVICE_NOBODY)
        result = nccl->send(work->input, work->count, type, (int)work->to, comm, stream);
    if (work->from != MUSTER_DEVICE_NOBODY && is_taken(result))
        result = nccl->receive(work->output, work->from_count, type, (int)work->from, comm, stream);
    end = nccl->group_end();
    return is_taken(result) ? end : result;
}

static int issue_work(const struct muster_nccl *nccl, struct muster_nccl_comm *comm,
                      const struct muster_nccl_work *work, struct muster_cuda_stream *stream)
{
    int type = type_of(work->dtype), reduction = NCCL_SUM;

    (void)find_reduction(work->reduction, &reduction);
    switch (work->kind) {
    case MUSTER_DEVICE_ALL_REDUCE:
        return nccl->all_reduce(work->input, work->output, work->count, type, reduction, comm,
                                stream);
    case MUSTER_DEVICE_BROADCAST:
        return nccl->broadcast(work->input, work->output, work->count, type, (int)work->root, comm,
                               stream);
    case MUSTER_DEVICE_ALL_GATHER:
        return nccl->all_gather(work->input, work->output, work->count, type, comm, stream);
    case MUSTER_DEVICE_REDUCE_SCATTER:
        return nccl->reduce_scatter(work->input, work->output, work->count, type, reduction, comm,
                                    stream);
    case MUSTER_DEVICE_REDUCE:
        return nccl->reduce(work->input, work->output, work->count, type, reduction,
                            (int)work->root, comm, stream);
    case MUSTER_DEVICE_ALL_TO_ALL:
        if (nccl->all_to_all != NULL)
            return nccl->all_to_all(work->input, work->output, work->count, type, comm, stream);
        return exchange_parts(nccl, comm, work, stream);
    case MUSTER_DEVICE_SEND_RECV:
        return send_receive(nccl, comm, work, stream);
    default:
        return NCCL_INVALID_ARGUMENT;
    }
}

enum muster_rc muster_nccl_issue(const struct muster_nccl *nccl, struct muster_nccl_comm *comm,
                                 const struct muster_nccl_work *work,
                                 struct muster_cuda_stream *stream, bool *ret_is_pending,
                                 struct muster_error *ret_error)
{
    return check_pending(nccl, issue_work(nccl, comm, work, stream),
                         muster_device_kind_name(work->kind), ret_is_pending, ret_error);
}
