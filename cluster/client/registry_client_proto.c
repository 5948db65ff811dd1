/* The registry client's messages: requests packed, answers unpacked and turned into results. Only
 * this file of the client knows the generated types. Results borrow their bytes from the unpacked
 * message, which the caller frees after its callback. */
#include "cluster/client/registry_client_proto.h"

#include <string.h>

#include "proto/etcd.pb-c.h"
#include "proto/guard.h"

/* Small keys in large answers: the structs around a key take many times its bytes. */
static const struct muster_proto_limits limits = {.memory_per_byte = 64};

static ProtobufCBinaryData data_of(struct muster_bytes bytes)
{
    return (ProtobufCBinaryData){.len = bytes.size, .data = (uint8_t *)(uintptr_t)bytes.data};
}

static struct muster_bytes bytes_of(ProtobufCBinaryData data)
{
    return (struct muster_bytes){.data = data.data != NULL ? (const void *)data.data : "",
                                 .size = data.len};
}

static enum muster_rc pack_message(struct muster_mem *mem, const void *message,
                                   struct muster_registry_packed *ret_packed)
{
    return muster_proto_pack(mem, message, &ret_packed->bytes, &ret_packed->size);
}

/* A prefix is the span from itself to the first key that does not begin with it. */

static const uint8_t zero_byte[1] = {0};

struct span {
    ProtobufCBinaryData key;
    ProtobufCBinaryData end;
    uint8_t *room; /* holds end; NULL: none */
};

static bool span_init(struct span *span, struct muster_mem *mem, struct muster_bytes key,
                      enum muster_registry_reach reach)
{
    const struct muster_bytes open_end = {.data = zero_byte, .size = 1};
    size_t size = key.size;

    memset(span, 0, sizeof(*span));
    span->key = data_of(key.size > 0 || reach == MUSTER_REGISTRY_KEY ? key : open_end);
    if (reach == MUSTER_REGISTRY_KEY)
        return true;
    /* The end is the prefix with its last byte one higher; 0xff has none higher and is dropped. A
     * prefix of nothing but 0xff has no end ("\0" in etcd's terms). */
    while (size > 0 && ((const uint8_t *)key.data)[size - 1] == 0xff)
        size--;
    if (size == 0) {
        span->end = data_of(open_end);
        return true;
    }
    span->room = muster_mem_alloc(mem, size);
    if (span->room == NULL)
        return false;
    memcpy(span->room, key.data, size);
    span->room[size - 1]++;
    span->end = (ProtobufCBinaryData){.len = size, .data = span->room};
    return true;
}

/* Single requests. */

/* etcd sorts by key unless it is told otherwise, and the create revision is the order of arrival in
 * a queue. */
static void range_init(Etcdserverpb__RangeRequest *request, const struct span *span,
                       enum muster_registry_order order, uint64_t limit)
{
    etcdserverpb__range_request__init(request);
    request->key = span->key;
    request->range_end = span->end;
    request->limit = (int64_t)limit;
    if (order == MUSTER_REGISTRY_BY_KEY)
        return;
    request->sort_target = ETCDSERVERPB__RANGE_REQUEST__SORT_TARGET__CREATE;
    request->sort_order = order == MUSTER_REGISTRY_OLDEST_FIRST
                              ? ETCDSERVERPB__RANGE_REQUEST__SORT_ORDER__ASCEND
                              : ETCDSERVERPB__RANGE_REQUEST__SORT_ORDER__DESCEND;
}

enum muster_rc muster_registry_pack_range(struct muster_mem *mem,
                                          const struct muster_registry_range *range,
                                          struct muster_registry_packed *ret_packed)
{
    Etcdserverpb__RangeRequest request;
    struct span span;
    enum muster_rc rc = MUSTER_OK;

    if (!span_init(&span, mem, range->key, range->reach))
        return MUSTER_RESOURCE_EXHAUSTED;
    range_init(&request, &span, range->order, range->limit);
    request.revision = (int64_t)range->revision;
    request.keys_only = range->is_keys_only;
    request.count_only = range->is_count_only;
    request.serializable = range->is_serializable;
    rc = pack_message(mem, &request, ret_packed);
    muster_mem_free(mem, span.room);
    return rc;
}

static void put_init(Etcdserverpb__PutRequest *request, const struct muster_registry_step *step)
{
    etcdserverpb__put_request__init(request);
    request->key = data_of(step->key);
    request->value = data_of(step->value);
    request->lease = step->lease;
}

enum muster_rc muster_registry_pack_put(struct muster_mem *mem,
                                        const struct muster_registry_step *put,
                                        struct muster_registry_packed *ret_packed)
{
    Etcdserverpb__PutRequest request;

    put_init(&request, put);
    return pack_message(mem, &request, ret_packed);
}

enum muster_rc muster_registry_pack_delete(struct muster_mem *mem,
                                           const struct muster_registry_step *step,
                                           struct muster_registry_packed *ret_packed)
{
    Etcdserverpb__DeleteRangeRequest request;
    struct span span;
    enum muster_rc rc = MUSTER_OK;

    if (!span_init(&span, mem, step->key, step->reach))
        return MUSTER_RESOURCE_EXHAUSTED;
    etcdserverpb__delete_range_request__init(&request);
    request.key = span.key;
    request.range_end = span.end;
    rc = pack_message(mem, &request, ret_packed);
    muster_mem_free(mem, span.room);
    return rc;
}

enum muster_rc muster_registry_pack_grant(struct muster_mem *mem, uint64_t ttl_s, int64_t id,
                                          struct muster_registry_packed *ret_packed)
{
    Etcdserverpb__LeaseGrantRequest request;

    etcdserverpb__lease_grant_request__init(&request);
    request.ttl = (int64_t)ttl_s;
    request.id = id;
    return pack_message(mem, &request, ret_packed);
}

enum muster_rc muster_registry_pack_number(struct muster_mem *mem, enum muster_registry_kind kind,
                                           int64_t number,
                                           struct muster_registry_packed *ret_packed)
{
    Etcdserverpb__LeaseRevokeRequest revoke;
    Etcdserverpb__LeaseTimeToLiveRequest time_to_live;
    Etcdserverpb__CompactionRequest compact;

    switch (kind) {
    case MUSTER_REGISTRY_OP_REVOKE:
        etcdserverpb__lease_revoke_request__init(&revoke);
        revoke.id = number;
        return pack_message(mem, &revoke, ret_packed);
    case MUSTER_REGISTRY_OP_TIME_TO_LIVE:
        etcdserverpb__lease_time_to_live_request__init(&time_to_live);
        time_to_live.id = number;
        return pack_message(mem, &time_to_live, ret_packed);
    default:
        etcdserverpb__compaction_request__init(&compact);
        compact.revision = number;
        return pack_message(mem, &compact, ret_packed);
    }
}

enum muster_rc muster_registry_pack_keep_alive(struct muster_mem *mem, int64_t lease,
                                               struct muster_registry_packed *ret_packed)
{
    Etcdserverpb__LeaseKeepAliveRequest request;

    etcdserverpb__lease_keep_alive_request__init(&request);
    request.id = lease;
    return pack_message(mem, &request, ret_packed);
}

enum muster_rc muster_registry_pack_authenticate(struct muster_mem *mem, const char *user,
                                                 const char *password,
                                                 struct muster_registry_packed *ret_packed)
{
    Etcdserverpb__AuthenticateRequest request;

    etcdserverpb__authenticate_request__init(&request);
    request.name = (char *)(uintptr_t)user;
    request.password = (char *)(uintptr_t)password;
    return pack_message(mem, &request, ret_packed);
}

enum muster_rc muster_registry_pack_watch(struct muster_mem *mem, struct muster_bytes key,
                                          enum muster_registry_reach reach, uint64_t start_revision,
                                          struct muster_registry_packed *ret_packed)
{
    Etcdserverpb__WatchRequest request;
    Etcdserverpb__WatchCreateRequest create;
    struct span span;
    enum muster_rc rc = MUSTER_OK;

    if (!span_init(&span, mem, key, reach))
        return MUSTER_RESOURCE_EXHAUSTED;
    etcdserverpb__watch_create_request__init(&create);
    create.key = span.key;
    create.range_end = span.end;
    create.start_revision = (int64_t)start_revision;
    /* Notices of progress keep the revision to resume from young, so that a compaction rarely
     * passes a quiet watch. */
    create.progress_notify = true;
    create.fragment = true;
    etcdserverpb__watch_request__init(&request);
    request.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
    request.create_request = &create;
    rc = pack_message(mem, &request, ret_packed);
    muster_mem_free(mem, span.room);
    return rc;
}

/* Transactions. */

static void compare_init(Etcdserverpb__Compare *message,
                         const struct muster_registry_compare *compare)
{
    etcdserverpb__compare__init(message);
    message->key = data_of(compare->key);
    message->result = (Etcdserverpb__Compare__CompareResult)compare->relation;
    message->target = (Etcdserverpb__Compare__CompareTarget)compare->target;
    switch (compare->target) {
    case MUSTER_REGISTRY_VERSION:
        message->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_VERSION;
        message->version = (int64_t)compare->number;
        break;
    case MUSTER_REGISTRY_CREATE_REVISION:
        message->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_CREATE_REVISION;
        message->create_revision = (int64_t)compare->number;
        break;
    case MUSTER_REGISTRY_MOD_REVISION:
        message->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_MOD_REVISION;
        message->mod_revision = (int64_t)compare->number;
        break;
    case MUSTER_REGISTRY_VALUE:
        message->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_VALUE;
        message->value = data_of(compare->value);
        break;
    case MUSTER_REGISTRY_LEASE:
        message->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_LEASE;
        message->lease = (int64_t)compare->number;
        break;
    }
}

/* One operation with all the messages it may consist of. */
struct op_room {
    Etcdserverpb__RequestOp op;
    union {
        Etcdserverpb__RangeRequest range;
        Etcdserverpb__PutRequest put;
        Etcdserverpb__DeleteRangeRequest delete;
    };
    struct span span;
};

static bool op_init(struct op_room *room, struct muster_mem *mem,
                    const struct muster_registry_step *step)
{
    etcdserverpb__request_op__init(&room->op);
    room->span.room = NULL;
    if (step->kind != MUSTER_REGISTRY_PUT && !span_init(&room->span, mem, step->key, step->reach))
        return false;
    switch (step->kind) {
    case MUSTER_REGISTRY_GET:
        range_init(&room->range, &room->span, step->order, step->limit);
        room->range.max_create_revision = (int64_t)step->create_revision_max;
        room->op.request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        room->op.request_range = &room->range;
        break;
    case MUSTER_REGISTRY_PUT:
        put_init(&room->put, step);
        room->op.request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
        room->op.request_put = &room->put;
        break;
    case MUSTER_REGISTRY_DELETE:
        etcdserverpb__delete_range_request__init(&room->delete);
        room->delete.key = room->span.key;
        room->delete.range_end = room->span.end;
        room->op.request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        room->op.request_delete_range = &room->delete;
        break;
    }
    return true;
}

/* protobuf-c wants arrays of pointers, so a transaction takes three blocks for any number of
 * steps. */
struct txn_room {
    Etcdserverpb__TxnRequest request;
    Etcdserverpb__Compare *compares;
    struct op_room *ops; /* success, then failure */
    size_t op_count;
    void **pointers; /* to all of them, in the same order, compares first */
};

static void txn_fini(struct txn_room *room, struct muster_mem *mem)
{
    /* Only the steps that were filled own the end of a span. */
    for (size_t i = 0; room->ops != NULL && i < room->op_count; i++)
        muster_mem_free(mem, room->ops[i].span.room);
    muster_mem_free(mem, room->compares);
    muster_mem_free(mem, room->ops);
    muster_mem_free(mem, room->pointers);
}

static bool txn_alloc(struct txn_room *room, struct muster_mem *mem,
                      const struct muster_registry_txn *txn)
{
    size_t ops = txn->success_count + txn->failure_count;

    memset(room, 0, sizeof(*room));
    room->compares = muster_mem_alloc_zero(mem, txn->compare_count, sizeof(*room->compares));
    room->ops = muster_mem_alloc_zero(mem, ops, sizeof(*room->ops));
    room->pointers = muster_mem_alloc_zero(mem, txn->compare_count + ops, sizeof(void *));
    return room->compares != NULL && room->ops != NULL && room->pointers != NULL;
}

static bool txn_fill(struct txn_room *room, struct muster_mem *mem,
                     const struct muster_registry_txn *txn)
{
    size_t ops = txn->success_count + txn->failure_count;

    for (size_t i = 0; i < txn->compare_count; i++) {
        compare_init(&room->compares[i], &txn->compares[i]);
        room->pointers[i] = &room->compares[i];
    }
    for (size_t i = 0; i < ops; i++) {
        const struct muster_registry_step *step =
            i < txn->success_count ? &txn->success[i] : &txn->failure[i - txn->success_count];

        if (!op_init(&room->ops[i], mem, step))
            return false;
        room->op_count = i + 1;
        room->pointers[txn->compare_count + i] = &room->ops[i].op;
    }
    return true;
}

enum muster_rc muster_registry_pack_txn(struct muster_mem *mem,
                                        const struct muster_registry_txn *txn,
                                        struct muster_registry_packed *ret_packed)
{
    struct txn_room room;
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (txn_alloc(&room, mem, txn) && txn_fill(&room, mem, txn)) {
        void **ops = room.pointers + txn->compare_count;

        etcdserverpb__txn_request__init(&room.request);
        room.request.n_compare = txn->compare_count;
        room.request.compare = (Etcdserverpb__Compare **)(void *)room.pointers;
        room.request.n_success = txn->success_count;
        room.request.success = (Etcdserverpb__RequestOp **)(void *)ops;
        room.request.n_failure = txn->failure_count;
        room.request.failure = (Etcdserverpb__RequestOp **)(void *)(ops + txn->success_count);
        rc = pack_message(mem, &room.request, ret_packed);
    }
    txn_fini(&room, mem);
    return rc;
}

/* Answers. */

static void fill_kv(const Mvccpb__KeyValue *message, struct muster_registry_kv *ret_kv)
{
    *ret_kv = (struct muster_registry_kv){
        .key = bytes_of(message->key),
        .value = bytes_of(message->value),
        .create_revision = (uint64_t)message->create_revision,
        .mod_revision = (uint64_t)message->mod_revision,
        .version = (uint64_t)message->version,
        .lease = message->lease,
    };
}

static uint64_t revision_of(const Etcdserverpb__ResponseHeader *header)
{
    return header != NULL ? (uint64_t)header->revision : 0;
}

static void take_header(struct muster_registry_op *op, struct muster_registry_answer *answer,
                        const Etcdserverpb__ResponseHeader *header)
{
    op->revision = revision_of(header);
    answer->cluster_id = header != NULL ? header->cluster_id : 0;
}

static enum muster_rc parse_range(struct muster_mem *mem, const void *message,
                                  struct muster_registry_op *op,
                                  struct muster_registry_answer *answer)
{
    const Etcdserverpb__RangeResponse *range = message;

    take_header(op, answer, range->header);
    op->is_more = range->more;
    op->count = (uint64_t)range->count;
    answer->kvs = muster_mem_alloc_zero(mem, range->n_kvs, sizeof(*answer->kvs));
    if (answer->kvs == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < range->n_kvs; i++)
        fill_kv(range->kvs[i], &answer->kvs[i]);
    op->kvs = answer->kvs;
    op->kv_count = range->n_kvs;
    return MUSTER_OK;
}

static const Etcdserverpb__RangeResponse *range_in(const Etcdserverpb__ResponseOp *op)
{
    return op->response_case == ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE
               ? op->response_range
               : NULL;
}

/* The keys of all ranges of a transaction come in one array, in the order of the operations. */
static enum muster_rc parse_txn(struct muster_mem *mem, const void *message,
                                struct muster_registry_op *op,
                                struct muster_registry_answer *answer)
{
    const Etcdserverpb__TxnResponse *txn = message;
    size_t count = 0;

    take_header(op, answer, txn->header);
    op->is_succeeded = txn->succeeded;
    for (size_t i = 0; i < txn->n_responses; i++) {
        const Etcdserverpb__RangeResponse *range = range_in(txn->responses[i]);

        if (range != NULL)
            count += range->n_kvs;
    }
    answer->kvs = muster_mem_alloc_zero(mem, count, sizeof(*answer->kvs));
    if (answer->kvs == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    op->kvs = answer->kvs;
    for (size_t i = 0; i < txn->n_responses; i++) {
        const Etcdserverpb__RangeResponse *range = range_in(txn->responses[i]);

        for (size_t k = 0; range != NULL && k < range->n_kvs; k++)
            fill_kv(range->kvs[k], &answer->kvs[op->kv_count++]);
    }
    return MUSTER_OK;
}

static enum muster_rc parse_put(struct muster_mem *mem, const void *message,
                                struct muster_registry_op *op,
                                struct muster_registry_answer *answer)
{
    (void)mem;
    take_header(op, answer, ((const Etcdserverpb__PutResponse *)message)->header);
    return MUSTER_OK;
}

static enum muster_rc parse_delete(struct muster_mem *mem, const void *message,
                                   struct muster_registry_op *op,
                                   struct muster_registry_answer *answer)
{
    const Etcdserverpb__DeleteRangeResponse *deleted = message;

    (void)mem;
    take_header(op, answer, deleted->header);
    op->count = (uint64_t)deleted->deleted;
    return MUSTER_OK;
}

static enum muster_rc parse_grant(struct muster_mem *mem, const void *message,
                                  struct muster_registry_op *op,
                                  struct muster_registry_answer *answer)
{
    const Etcdserverpb__LeaseGrantResponse *grant = message;

    (void)mem;
    take_header(op, answer, grant->header);
    op->lease = grant->id;
    op->ttl_s = grant->ttl > 0 ? (uint64_t)grant->ttl : 0;
    if (grant->error != NULL && grant->error[0] != '\0')
        return muster_error_set(&op->error, MUSTER_FAILED_PRECONDITION, "%.200s", grant->error);
    return MUSTER_OK;
}

static enum muster_rc parse_revoke(struct muster_mem *mem, const void *message,
                                   struct muster_registry_op *op,
                                   struct muster_registry_answer *answer)
{
    (void)mem;
    take_header(op, answer, ((const Etcdserverpb__LeaseRevokeResponse *)message)->header);
    return MUSTER_OK;
}

static enum muster_rc parse_time_to_live(struct muster_mem *mem, const void *message,
                                         struct muster_registry_op *op,
                                         struct muster_registry_answer *answer)
{
    const Etcdserverpb__LeaseTimeToLiveResponse *left = message;

    (void)mem;
    take_header(op, answer, left->header);
    op->lease = left->id;
    /* etcd answers -1 for a lease that does not exist, and no error. */
    if (left->ttl < 0)
        return muster_error_set(&op->error, MUSTER_NOT_FOUND, "the lease is gone");
    op->ttl_s = (uint64_t)left->ttl;
    return MUSTER_OK;
}

static enum muster_rc parse_compact(struct muster_mem *mem, const void *message,
                                    struct muster_registry_op *op,
                                    struct muster_registry_answer *answer)
{
    (void)mem;
    take_header(op, answer, ((const Etcdserverpb__CompactionResponse *)message)->header);
    return MUSTER_OK;
}

typedef enum muster_rc parse_fn(struct muster_mem *mem, const void *message,
                                struct muster_registry_op *op,
                                struct muster_registry_answer *answer);

static const struct {
    const ProtobufCMessageDescriptor *descriptor;
    parse_fn *parse;
} parsers[] = {
    [MUSTER_REGISTRY_OP_RANGE] = {&etcdserverpb__range_response__descriptor, parse_range},
    [MUSTER_REGISTRY_OP_PUT] = {&etcdserverpb__put_response__descriptor, parse_put},
    [MUSTER_REGISTRY_OP_DELETE] = {&etcdserverpb__delete_range_response__descriptor, parse_delete},
    [MUSTER_REGISTRY_OP_TXN] = {&etcdserverpb__txn_response__descriptor, parse_txn},
    [MUSTER_REGISTRY_OP_GRANT] = {&etcdserverpb__lease_grant_response__descriptor, parse_grant},
    [MUSTER_REGISTRY_OP_REVOKE] = {&etcdserverpb__lease_revoke_response__descriptor, parse_revoke},
    [MUSTER_REGISTRY_OP_TIME_TO_LIVE] = {&etcdserverpb__lease_time_to_live_response__descriptor,
                                         parse_time_to_live},
    [MUSTER_REGISTRY_OP_COMPACT] = {&etcdserverpb__compaction_response__descriptor, parse_compact},
};

enum muster_rc muster_registry_parse_answer(struct muster_mem *mem, enum muster_registry_kind kind,
                                            struct muster_bytes bytes,
                                            struct muster_registry_op *op,
                                            struct muster_registry_answer *ret_answer)
{
    struct muster_error error = {.text = ""};
    enum muster_rc rc = muster_proto_unpack(mem, parsers[kind].descriptor, bytes.data, bytes.size,
                                            &limits, &ret_answer->message, &error);

    if (rc == MUSTER_OK)
        rc = parsers[kind].parse(mem, ret_answer->message, op, ret_answer);
    else if (rc != MUSTER_RESOURCE_EXHAUSTED)
        rc = muster_error_set(&op->error, MUSTER_INTERNAL,
                              "malformed answer of the registry: %.150s", error.text);
    /* The unpacking may meet a limit of the guard as well as the lack of memory, which its text tells
     * apart; the copying of keys has no text. */
    if (rc == MUSTER_RESOURCE_EXHAUSTED)
        muster_error_set(&op->error, rc,
                         "cannot take the answer of the registry: %.150s; ask for fewer keys",
                         error.text[0] != '\0' ? error.text : "out of memory");
    return rc;
}

void muster_registry_answer_free(struct muster_mem *mem, struct muster_registry_answer *answer)
{
    muster_mem_free(mem, answer->kvs);
    muster_proto_free(answer->message);
    memset(answer, 0, sizeof(*answer));
}

/* Streams. */

static enum muster_rc fill_changes(struct muster_mem *mem,
                                   const Etcdserverpb__WatchResponse *message,
                                   struct muster_registry_notice *notice)
{
    notice->changes = muster_mem_alloc_zero(mem, message->n_events, sizeof(*notice->changes));
    if (notice->changes == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < message->n_events; i++) {
        const Mvccpb__Event *event = message->events[i];

        /* etcd always sends the key; an event without one could not be told to anybody. */
        if (event->kv == NULL)
            continue;
        notice->changes[notice->change_count].is_delete =
            event->type == MVCCPB__EVENT__EVENT_TYPE__DELETE;
        fill_kv(event->kv, &notice->changes[notice->change_count++].kv);
    }
    return MUSTER_OK;
}

enum muster_rc muster_registry_parse_watch(struct muster_mem *mem, struct muster_bytes bytes,
                                           struct muster_registry_notice *ret_notice)
{
    struct muster_error error;
    Etcdserverpb__WatchResponse *message = NULL;
    enum muster_rc rc = muster_proto_unpack(mem, &etcdserverpb__watch_response__descriptor,
                                            bytes.data, bytes.size, &limits, &message, &error);

    if (rc != MUSTER_OK)
        return rc;
    memset(ret_notice, 0, sizeof(*ret_notice));
    ret_notice->message = message;
    ret_notice->cluster_id = message->header != NULL ? message->header->cluster_id : 0;
    ret_notice->revision = revision_of(message->header);
    ret_notice->compact_revision = (uint64_t)message->compact_revision;
    ret_notice->is_created = message->created;
    ret_notice->is_canceled = message->canceled;
    ret_notice->is_fragment = message->fragment;
    ret_notice->cancel_reason = message->cancel_reason;
    rc = fill_changes(mem, message, ret_notice);
    if (rc != MUSTER_OK)
        muster_registry_notice_free(mem, ret_notice);
    return rc;
}

void muster_registry_notice_free(struct muster_mem *mem, struct muster_registry_notice *notice)
{
    muster_mem_free(mem, notice->changes);
    muster_proto_free(notice->message);
    memset(notice, 0, sizeof(*notice));
}

enum muster_rc muster_registry_parse_keep_alive(struct muster_mem *mem, struct muster_bytes bytes,
                                                int64_t *ret_lease, int64_t *ret_ttl_s)
{
    struct muster_error error;
    Etcdserverpb__LeaseKeepAliveResponse *message = NULL;
    enum muster_rc rc =
        muster_proto_unpack(mem, &etcdserverpb__lease_keep_alive_response__descriptor, bytes.data,
                            bytes.size, &limits, &message, &error);

    if (rc != MUSTER_OK)
        return rc;
    *ret_lease = message->id;
    *ret_ttl_s = message->ttl;
    muster_proto_free(message);
    return MUSTER_OK;
}

enum muster_rc muster_registry_parse_token(struct muster_mem *mem, struct muster_bytes bytes,
                                           char **ret_token)
{
    struct muster_error error;
    Etcdserverpb__AuthenticateResponse *message = NULL;
    char *token = NULL;
    enum muster_rc rc = muster_proto_unpack(mem, &etcdserverpb__authenticate_response__descriptor,
                                            bytes.data, bytes.size, &limits, &message, &error);

    if (rc != MUSTER_OK)
        return rc;
    token = muster_mem_strdup(mem, message->token);
    muster_proto_free(message);
    if (token == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    *ret_token = token;
    return MUSTER_OK;
}

enum muster_rc muster_registry_parse_snapshot(struct muster_mem *mem, struct muster_bytes bytes,
                                              struct muster_registry_piece *ret_piece)
{
    struct muster_error error;
    Etcdserverpb__SnapshotResponse *message = NULL;
    enum muster_rc rc = muster_proto_unpack(mem, &etcdserverpb__snapshot_response__descriptor,
                                            bytes.data, bytes.size, &limits, &message, &error);

    if (rc != MUSTER_OK)
        return rc;
    ret_piece->message = message;
    ret_piece->bytes = bytes_of(message->blob);
    return MUSTER_OK;
}

void muster_registry_piece_free(struct muster_registry_piece *piece)
{
    muster_proto_free(piece->message);
}
