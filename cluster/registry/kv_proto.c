/* KV requests of the wire into the terms of cluster/store/mvcc.h, and results into messages.
 * kv_service.c, watch_service.c and the elections call it. It gives the fields no meaning of its
 * own: numbers that an enum of the wire does not know pass through, and mvcc decides about them. */
#include "cluster/registry/kv_proto.h"

#include "proto/etcd.pb-c.h"

const void *muster_kv_proto_descriptor(enum muster_mvcc_kind kind)
{
    switch (kind) {
    case MUSTER_MVCC_RANGE:
        return &etcdserverpb__range_request__descriptor;
    case MUSTER_MVCC_PUT:
        return &etcdserverpb__put_request__descriptor;
    case MUSTER_MVCC_DELETE:
        return &etcdserverpb__delete_range_request__descriptor;
    case MUSTER_MVCC_TXN:
        return &etcdserverpb__txn_request__descriptor;
    case MUSTER_MVCC_NOTHING:
        break;
    }
    return NULL;
}

static struct muster_bytes bytes_of(ProtobufCBinaryData data)
{
    return (struct muster_bytes){.data = data.data, .size = data.len};
}

/* Requests. */

static void range_request(const Etcdserverpb__RangeRequest *message,
                          struct muster_mvcc_range *ret_range)
{
    *ret_range = (struct muster_mvcc_range){
        .span = {.key = bytes_of(message->key), .end = bytes_of(message->range_end)},
        .limit = message->limit,
        .revision = message->revision,
        .order = (int)message->sort_order,
        .target = (int)message->sort_target,
        .is_keys_only = message->keys_only,
        .is_count_only = message->count_only,
        .min_mod_revision = message->min_mod_revision,
        .max_mod_revision = message->max_mod_revision,
        .min_create_revision = message->min_create_revision,
        .max_create_revision = message->max_create_revision,
    };
}

static void put_request(const Etcdserverpb__PutRequest *message, struct muster_mvcc_put *ret_put)
{
    *ret_put = (struct muster_mvcc_put){
        .key = bytes_of(message->key),
        .value = bytes_of(message->value),
        .lease = message->lease,
        .wants_prev = message->prev_kv,
        .ignores_value = message->ignore_value,
        .ignores_lease = message->ignore_lease,
    };
}

static void delete_request(const Etcdserverpb__DeleteRangeRequest *message,
                           struct muster_mvcc_delete *ret_delete)
{
    *ret_delete = (struct muster_mvcc_delete){
        .span = {.key = bytes_of(message->key), .end = bytes_of(message->range_end)},
        .wants_prev = message->prev_kv,
    };
}

/* A number that belongs to another target than the one compared counts as 0, as in etcd. */
static int64_t compare_number(const Etcdserverpb__Compare *message)
{
    static const Etcdserverpb__Compare__TargetUnionCase cases[] = {
        [MUSTER_MVCC_COMPARE_VERSION] = ETCDSERVERPB__COMPARE__TARGET_UNION_VERSION,
        [MUSTER_MVCC_COMPARE_CREATE] = ETCDSERVERPB__COMPARE__TARGET_UNION_CREATE_REVISION,
        [MUSTER_MVCC_COMPARE_MOD] = ETCDSERVERPB__COMPARE__TARGET_UNION_MOD_REVISION,
        [MUSTER_MVCC_COMPARE_VALUE] = ETCDSERVERPB__COMPARE__TARGET_UNION_VALUE,
        [MUSTER_MVCC_COMPARE_LEASE] = ETCDSERVERPB__COMPARE__TARGET_UNION_LEASE,
    };
    int target = (int)message->target;

    if (target < 0 || target > MUSTER_MVCC_COMPARE_LEASE || target == MUSTER_MVCC_COMPARE_VALUE ||
        cases[target] != message->target_union_case)
        return 0;
    switch (target) {
    case MUSTER_MVCC_COMPARE_VERSION:
        return message->version;
    case MUSTER_MVCC_COMPARE_CREATE:
        return message->create_revision;
    case MUSTER_MVCC_COMPARE_MOD:
        return message->mod_revision;
    default:
        return message->lease;
    }
}

static void compare_request(const Etcdserverpb__Compare *message,
                            struct muster_mvcc_compare *ret_compare)
{
    *ret_compare = (struct muster_mvcc_compare){
        .span = {.key = bytes_of(message->key), .end = bytes_of(message->range_end)},
        .target = (int)message->target,
        .relation = (int)message->result,
        .number = compare_number(message),
        .value = {.data = "", .size = 0},
    };
    if (message->target_union_case == ETCDSERVERPB__COMPARE__TARGET_UNION_VALUE)
        ret_compare->value = bytes_of(message->value);
}

/* An empty operation of the wire becomes MUSTER_MVCC_NOTHING, which the check of the request
 * refuses as etcd does. */
static enum muster_rc op_request(const Etcdserverpb__RequestOp *message,
                                 struct muster_registry_arena *arena,
                                 struct muster_mvcc_request *ret_request)
{
    enum muster_mvcc_kind kind = MUSTER_MVCC_NOTHING;
    const void *inner = NULL;

    switch (message->request_case) {
    case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE:
        kind = MUSTER_MVCC_RANGE;
        inner = message->request_range;
        break;
    case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT:
        kind = MUSTER_MVCC_PUT;
        inner = message->request_put;
        break;
    case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE:
        kind = MUSTER_MVCC_DELETE;
        inner = message->request_delete_range;
        break;
    case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_TXN:
        kind = MUSTER_MVCC_TXN;
        inner = message->request_txn;
        break;
    default:
        break;
    }
    return muster_kv_proto_request(inner != NULL ? kind : MUSTER_MVCC_NOTHING, inner, arena,
                                   ret_request);
}

static enum muster_rc list_request(Etcdserverpb__RequestOp **messages, size_t count,
                                   struct muster_registry_arena *arena,
                                   struct muster_mvcc_request **ret_requests)
{
    struct muster_mvcc_request *requests =
        muster_registry_arena_array(arena, count, sizeof(*requests));

    if (requests == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < count; i++) {
        enum muster_rc rc = op_request(messages[i], arena, &requests[i]);

        if (rc != MUSTER_OK)
            return rc;
    }
    *ret_requests = requests;
    return MUSTER_OK;
}

/* Transactions nest. The depth is bounded by the unpacker's own limit (proto/guard.h), before this
 * recursion sees the message. */
static enum muster_rc txn_request(const Etcdserverpb__TxnRequest *message,
                                  struct muster_registry_arena *arena,
                                  struct muster_mvcc_txn *ret_txn)
{
    struct muster_mvcc_compare *compares =
        muster_registry_arena_array(arena, message->n_compare, sizeof(*compares));
    enum muster_rc rc = MUSTER_OK;

    if (compares == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < message->n_compare; i++)
        compare_request(message->compare[i], &compares[i]);
    *ret_txn = (struct muster_mvcc_txn){
        .compares = compares,
        .compare_count = message->n_compare,
        .success_count = message->n_success,
        .failure_count = message->n_failure,
    };
    rc = list_request(message->success, message->n_success, arena, &ret_txn->success);
    if (rc != MUSTER_OK)
        return rc;
    return list_request(message->failure, message->n_failure, arena, &ret_txn->failure);
}

enum muster_rc muster_kv_proto_request(enum muster_mvcc_kind kind, const void *message,
                                       struct muster_registry_arena *arena,
                                       struct muster_mvcc_request *ret_request)
{
    ret_request->kind = kind;
    switch (kind) {
    case MUSTER_MVCC_RANGE:
        range_request(message, &ret_request->range);
        break;
    case MUSTER_MVCC_PUT:
        put_request(message, &ret_request->put);
        break;
    case MUSTER_MVCC_DELETE:
        delete_request(message, &ret_request->delete);
        break;
    case MUSTER_MVCC_TXN:
        return txn_request(message, arena, &ret_request->txn);
    case MUSTER_MVCC_NOTHING:
        break;
    }
    return MUSTER_OK;
}

/* Answers. */

/* protobuf-c has no const bytes; it only reads them when it packs. */
static ProtobufCBinaryData data_of(struct muster_bytes bytes)
{
    return (ProtobufCBinaryData){.len = bytes.size, .data = (uint8_t *)(uintptr_t)bytes.data};
}

void muster_kv_proto_fill(const struct muster_registry_record *record,
                          struct Mvccpb__KeyValue *ret_kv)
{
    mvccpb__key_value__init(ret_kv);
    ret_kv->key = data_of(record->key);
    ret_kv->value = data_of(record->value);
    ret_kv->create_revision = record->create_revision;
    ret_kv->mod_revision = record->mod_revision;
    ret_kv->version = record->version;
    ret_kv->lease = record->lease;
}

/* protobuf-c wants an array of pointers for a repeated message, hence two arrays. */
static bool fill_kvs(const struct muster_mvcc_result *result, struct muster_registry_arena *arena,
                     size_t *ret_count, Mvccpb__KeyValue ***ret_kvs)
{
    size_t count = result->record_count;
    Mvccpb__KeyValue *kvs = muster_registry_arena_array(arena, count, sizeof(*kvs));
    Mvccpb__KeyValue **pointers = muster_registry_arena_array(arena, count, sizeof(*pointers));

    if (kvs == NULL || pointers == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        muster_kv_proto_fill(&result->records[i], &kvs[i]);
        pointers[i] = &kvs[i];
    }
    *ret_count = count;
    *ret_kvs = pointers;
    return true;
}

static void *range_answer(const struct muster_mvcc_result *result,
                          Etcdserverpb__ResponseHeader *header,
                          struct muster_registry_arena *arena)
{
    Etcdserverpb__RangeResponse *answer = muster_registry_arena_alloc(arena, sizeof(*answer));

    if (answer == NULL)
        return NULL;
    etcdserverpb__range_response__init(answer);
    answer->header = header;
    answer->more = result->is_more;
    answer->count = result->count;
    return fill_kvs(result, arena, &answer->n_kvs, &answer->kvs) ? answer : NULL;
}

static void *put_answer(const struct muster_mvcc_result *result,
                        Etcdserverpb__ResponseHeader *header,
                        struct muster_registry_arena *arena)
{
    Etcdserverpb__PutResponse *answer = muster_registry_arena_alloc(arena, sizeof(*answer));
    Mvccpb__KeyValue **kvs = NULL;
    size_t count = 0;

    if (answer == NULL)
        return NULL;
    etcdserverpb__put_response__init(answer);
    answer->header = header;
    if (result->record_count == 0)
        return answer;
    if (!fill_kvs(result, arena, &count, &kvs))
        return NULL;
    answer->prev_kv = kvs[0];
    return answer;
}

static void *delete_answer(const struct muster_mvcc_result *result,
                           Etcdserverpb__ResponseHeader *header,
                           struct muster_registry_arena *arena)
{
    Etcdserverpb__DeleteRangeResponse *answer = muster_registry_arena_alloc(arena, sizeof(*answer));

    if (answer == NULL)
        return NULL;
    etcdserverpb__delete_range_response__init(answer);
    answer->header = header;
    answer->deleted = result->count;
    return fill_kvs(result, arena, &answer->n_prev_kvs, &answer->prev_kvs) ? answer : NULL;
}

/* Inner answers carry a header too, because clients of etcd may read the revision there. */
static bool fill_op(const struct muster_mvcc_result *result, Etcdserverpb__ResponseHeader *header,
                    struct muster_registry_arena *arena, Etcdserverpb__ResponseOp *ret_op)
{
    void *answer = muster_kv_proto_answer(result, header, arena);

    etcdserverpb__response_op__init(ret_op);
    switch (result->kind) {
    case MUSTER_MVCC_RANGE:
        ret_op->response_case = ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE;
        ret_op->response_range = answer;
        break;
    case MUSTER_MVCC_PUT:
        ret_op->response_case = ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_PUT;
        ret_op->response_put = answer;
        break;
    case MUSTER_MVCC_DELETE:
        ret_op->response_case = ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_DELETE_RANGE;
        ret_op->response_delete_range = answer;
        break;
    case MUSTER_MVCC_TXN:
        ret_op->response_case = ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_TXN;
        ret_op->response_txn = answer;
        break;
    case MUSTER_MVCC_NOTHING:
        break;
    }
    return answer != NULL;
}

static void *txn_answer(const struct muster_mvcc_result *result,
                        Etcdserverpb__ResponseHeader *header,
                        struct muster_registry_arena *arena)
{
    size_t count = result->result_count;
    Etcdserverpb__TxnResponse *answer = muster_registry_arena_alloc(arena, sizeof(*answer));
    Etcdserverpb__ResponseOp *ops = muster_registry_arena_array(arena, count, sizeof(*ops));
    Etcdserverpb__ResponseOp **pointers =
        muster_registry_arena_array(arena, count, sizeof(*pointers));

    if (answer == NULL || ops == NULL || pointers == NULL)
        return NULL;
    etcdserverpb__txn_response__init(answer);
    answer->header = header;
    answer->succeeded = result->is_succeeded;
    for (size_t i = 0; i < count; i++) {
        if (!fill_op(&result->results[i], header, arena, &ops[i]))
            return NULL;
        pointers[i] = &ops[i];
    }
    answer->n_responses = count;
    answer->responses = pointers;
    return answer;
}

void *muster_kv_proto_answer(const struct muster_mvcc_result *result,
                             struct Etcdserverpb__ResponseHeader *header,
                             struct muster_registry_arena *arena)
{
    switch (result->kind) {
    case MUSTER_MVCC_RANGE:
        return range_answer(result, header, arena);
    case MUSTER_MVCC_PUT:
        return put_answer(result, header, arena);
    case MUSTER_MVCC_DELETE:
        return delete_answer(result, header, arena);
    case MUSTER_MVCC_TXN:
        return txn_answer(result, header, arena);
    case MUSTER_MVCC_NOTHING:
        break;
    }
    return NULL;
}
