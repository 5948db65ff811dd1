/* Messages of the registry client: requests to bytes, answers to results. */
#ifndef MUSTER_CLUSTER_REGISTRY_CLIENT_PROTO_H
#define MUSTER_CLUSTER_REGISTRY_CLIENT_PROTO_H

#include <muster/registry.h>

enum muster_registry_kind {
    MUSTER_REGISTRY_OP_RANGE,
    MUSTER_REGISTRY_OP_PUT,
    MUSTER_REGISTRY_OP_DELETE,
    MUSTER_REGISTRY_OP_TXN,
    MUSTER_REGISTRY_OP_GRANT,
    MUSTER_REGISTRY_OP_REVOKE,
    MUSTER_REGISTRY_OP_TIME_TO_LIVE,
    MUSTER_REGISTRY_OP_COMPACT,
};

/** Packed bytes. Gives bytes (muster_mem_free). */
struct muster_registry_packed {
    void *bytes;
    size_t size;
};

MUSTER_MUST_CHECK enum muster_rc muster_registry_pack_range(
    struct muster_mem *mem, const struct muster_registry_range *range,
    struct muster_registry_packed *ret_packed);
MUSTER_MUST_CHECK enum muster_rc muster_registry_pack_put(
    struct muster_mem *mem, const struct muster_registry_step *put,
    struct muster_registry_packed *ret_packed);
MUSTER_MUST_CHECK enum muster_rc muster_registry_pack_delete(
    struct muster_mem *mem, const struct muster_registry_step *step,
    struct muster_registry_packed *ret_packed);
MUSTER_MUST_CHECK enum muster_rc muster_registry_pack_txn(
    struct muster_mem *mem, const struct muster_registry_txn *txn,
    struct muster_registry_packed *ret_packed);
MUSTER_MUST_CHECK enum muster_rc muster_registry_pack_grant(
    struct muster_mem *mem, uint64_t ttl_s, int64_t id, struct muster_registry_packed *ret_packed);
/** The requests that name one number: REVOKE, TIME_TO_LIVE, COMPACT. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_pack_number(
    struct muster_mem *mem, enum muster_registry_kind kind, int64_t number,
    struct muster_registry_packed *ret_packed);
MUSTER_MUST_CHECK enum muster_rc muster_registry_pack_keep_alive(
    struct muster_mem *mem, int64_t lease, struct muster_registry_packed *ret_packed);
MUSTER_MUST_CHECK enum muster_rc muster_registry_pack_authenticate(
    struct muster_mem *mem, const char *user, const char *password,
    struct muster_registry_packed *ret_packed);
MUSTER_MUST_CHECK enum muster_rc muster_registry_pack_watch(
    struct muster_mem *mem, struct muster_bytes key, enum muster_registry_reach reach,
    uint64_t start_revision, struct muster_registry_packed *ret_packed);

/** The unpacked message of an answer, which the kvs of the operation are borrowed from. */
struct muster_registry_answer {
    void *message;
    struct muster_registry_kv *kvs;
    uint64_t cluster_id; /* 0: not told */
};
/** Fill op's results. NOT_FOUND: the answer says that the lease is gone; INTERNAL: not an answer.
 * Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_parse_answer(
    struct muster_mem *mem, enum muster_registry_kind kind, struct muster_bytes bytes,
    struct muster_registry_op *op, struct muster_registry_answer *ret_answer);
void muster_registry_answer_free(struct muster_mem *mem, struct muster_registry_answer *answer);

struct muster_registry_notice {
    void *message;
    uint64_t cluster_id;
    uint64_t revision;
    uint64_t compact_revision;
    bool is_created;
    bool is_canceled;
    bool is_fragment;
    const char *cancel_reason;
    struct muster_registry_change *changes; /* borrow from message */
    size_t change_count;
};
/** Gives *ret_notice. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_parse_watch(
    struct muster_mem *mem, struct muster_bytes bytes, struct muster_registry_notice *ret_notice);
void muster_registry_notice_free(struct muster_mem *mem, struct muster_registry_notice *notice);

MUSTER_MUST_CHECK enum muster_rc muster_registry_parse_keep_alive(struct muster_mem *mem,
                                                                  struct muster_bytes bytes,
                                                                  int64_t *ret_lease,
                                                                  int64_t *ret_ttl_s);
struct muster_registry_piece {
    void *message;
    struct muster_bytes bytes; /* borrowed from message */
};
/** Gives *ret_piece. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_parse_snapshot(
    struct muster_mem *mem, struct muster_bytes bytes, struct muster_registry_piece *ret_piece);
void muster_registry_piece_free(struct muster_registry_piece *piece);
/** Gives *ret_token. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_parse_token(struct muster_mem *mem,
                                                             struct muster_bytes bytes,
                                                             char **ret_token);

#endif
