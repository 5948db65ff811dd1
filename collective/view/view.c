/* The view as a value: build, count, look up. Its wire form is in view_proto.c. */
#include <muster/view.h>

#include <stdlib.h>
#include <string.h>

#include <muster/hash.h>

#include "collective/view/plan_parameters.h"

int muster_member_compare(const struct muster_member *a, const struct muster_member *b)
{
    bool a_is_chief = strcmp(a->task_type, "chief") == 0;
    bool b_is_chief = strcmp(b->task_type, "chief") == 0;
    int order;

    if (a_is_chief != b_is_chief)
        return a_is_chief ? -1 : 1;
    order = strcmp(a->task_type, b->task_type);
    if (order != 0)
        return order;
    return (a->task_index > b->task_index) - (a->task_index < b->task_index);
}

/* Ranks are positions in this order, so all processes must sort alike without a word. qsort is not
 * stable: equal labels are told apart by incarnation. */
static int compare_members(const void *a, const void *b)
{
    const struct muster_member *left = a;
    const struct muster_member *right = b;
    int order = muster_member_compare(left, right);

    if (order != 0)
        return order;
    return memcmp(left->incarnation.bytes, right->incarnation.bytes,
                  sizeof(left->incarnation.bytes));
}

/* By operation, which muster_view_verdict searches for. */
static int compare_verdicts(const void *a, const void *b)
{
    return muster_op_id_compare(&((const struct muster_verdict *)a)->op,
                                &((const struct muster_verdict *)b)->op);
}

/* --- Digest: over the fields that <muster/view.h> names, in a fixed order, free of padding. ---
 * Members compare digests in heartbeats: two views of one number that differ are found there.
 * A field that is added to the view must be added here as well; `started` and `machine` of a member are
 * left out, since they only help to find its process. */

/* Byte by byte, the lowest first: members of either byte order must find the same digest. */
static uint64_t hash_u64(uint64_t value, uint64_t seed)
{
    uint8_t bytes[8];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    return muster_hash64(bytes, sizeof(bytes), seed);
}

/* The NUL is hashed too: "ab", "c" and "a", "bc" must differ. */
static uint64_t hash_text(const char *text, uint64_t seed)
{
    return muster_hash64(text, strlen(text) + 1, seed);
}

/* Only the bytes that the family uses count; the rest of the struct may hold anything. */
static uint64_t hash_address(const struct muster_address *address, uint64_t seed)
{
    seed = hash_u64(((uint64_t)address->family << 16) | address->port, seed);
    switch (address->family) {
    case MUSTER_ADDRESS_NONE:
        return seed;
    case MUSTER_ADDRESS_IPV4:
        return muster_hash64(address->ip, 4, seed);
    case MUSTER_ADDRESS_IPV6:
        return muster_hash64(address->ip, sizeof(address->ip), hash_u64(address->scope_id, seed));
    case MUSTER_ADDRESS_UNIX:
        return hash_text(address->path, seed);
    }
    return seed;
}

static uint64_t hash_member(const struct muster_member *member, uint64_t seed)
{
    seed = muster_hash64(member->incarnation.bytes, sizeof(member->incarnation.bytes), seed);
    seed = hash_text(member->task_type, seed);
    seed = hash_u64(member->task_index, seed);
    seed = hash_address(&member->address, seed);
    seed = hash_text(member->host_key, seed);
    seed = hash_u64((uint64_t)member->pid, seed);
    seed = hash_u64(member->from_step, seed);
    /* One replica is what members have that do not know of replicas. */
    return member->replica_count > 1 ? hash_u64(member->replica_count, seed) : seed;
}

static uint64_t hash_verdict(const struct muster_verdict *verdict, uint64_t seed)
{
    seed = hash_u64(verdict->op.step, seed);
    seed = hash_u64(((uint64_t)verdict->op.lane << 32) | verdict->op.sequence, seed);
    seed = hash_u64(verdict->descriptor, seed);
    seed = hash_u64(((uint64_t)verdict->kind << 32) | verdict->chunk_count, seed);
    seed = hash_u64(verdict->source_count, seed);
    for (uint32_t i = 0; i < verdict->source_count; i++) {
        const struct muster_chunk_source *source = &verdict->sources[i];

        seed = hash_u64(((uint64_t)source->first << 32) | source->count, seed);
        seed = hash_u64(source->rank, seed);
    }
    return seed;
}

static uint64_t hash_plan(const struct muster_plan_parameters *plan, uint64_t seed)
{
    seed = hash_u64(((uint64_t)plan->chunk_bytes << 32) | plan->direct_max_bytes, seed);
    seed = hash_u64(((uint64_t)plan->forced << 32) | plan->is_reproducible, seed);
    seed = hash_u64(plan->row_count, seed);
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const struct muster_plan_row *row = &plan->rows[i];
        uint64_t small = ((uint64_t)row->kind << 24) | ((uint64_t)row->wire << 16) |
                         ((uint64_t)row->span << 8) | row->algorithm;

        seed = hash_u64((small << 32) | row->n_min, seed);
        seed = hash_u64(row->bytes_max, seed);
    }
    return seed;
}

static uint64_t hash_communication(const struct muster_communication_options *options,
                                   uint64_t seed)
{
    seed = hash_u64((uint64_t)options->implementation, seed);
    seed = hash_u64(options->bytes_per_pack, seed);
    return hash_u64(options->timeout_ns, seed);
}

static uint64_t view_digest(const struct muster_view *view)
{
    uint64_t seed = hash_text(view->job, view->epoch);

    seed = hash_plan(&view->plan, seed);
    seed = hash_communication(&view->communication, seed);
    seed = hash_u64(((uint64_t)view->is_fixed_size << 32) | (uint64_t)view->data_protection, seed);
    seed = hash_u64(view->member_count, seed);
    for (uint32_t i = 0; i < view->member_count; i++)
        seed = hash_member(&view->members[i], seed);
    seed = hash_u64(view->verdict_count, seed);
    for (uint32_t i = 0; i < view->verdict_count; i++)
        seed = hash_verdict(&view->verdicts[i], seed);
    seed = hash_u64(view->is_below_min, seed);
    seed = hash_u64(view->is_done, seed);
    seed = hash_u64(view->done_step, seed);
    seed = hash_u64(view->done_calls, seed);
    seed = hash_text(view->done_by, seed);
    seed = hash_u64(view->begun_step, seed);
    seed = hash_u64(view->begin_epoch, seed);
    seed = hash_u64(view->is_stopping, seed);
    seed = hash_u64(view->stop_step, seed);
    seed = hash_u64(view->is_state_lost, seed);
    return hash_text(view->reason, seed);
}

/* --- Building --- */

static size_t count_sources(const struct muster_view *view)
{
    size_t count = 0;

    for (uint32_t i = 0; i < view->verdict_count; i++)
        count += view->verdicts[i].source_count;
    return count;
}

static bool has_text_end(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

static bool is_member_valid(const struct muster_member *member)
{
    return !muster_incarnation_is_zero(&member->incarnation) &&
           has_text_end(member->task_type, sizeof(member->task_type)) &&
           has_text_end(member->host_key, sizeof(member->host_key)) &&
           has_text_end(member->address.path, sizeof(member->address.path));
}

/* Texts need their end here: fields may come from a caller's struct, and later code reads them as strings. */
static bool are_fields_valid(const struct muster_view *fields)
{
    if (fields->epoch == 0 || !muster_plan_parameters_are_valid(&fields->plan) ||
        (unsigned)fields->communication.implementation > MUSTER_COMMUNICATION_NCCL ||
        (unsigned)fields->data_protection > MUSTER_DATA_AUTHENTICATED ||
        !has_text_end(fields->job, sizeof(fields->job)) ||
        !has_text_end(fields->reason, sizeof(fields->reason)) ||
        !has_text_end(fields->done_by, sizeof(fields->done_by)))
        return false;
    for (uint32_t i = 0; i < fields->member_count; i++)
        if (!is_member_valid(&fields->members[i]))
            return false;
    return true;
}

/* Quadratic, but a view is built once per epoch and members are few. The verdicts are sorted
 * already, so two of one operation are neighbours. */
static bool has_duplicates(const struct muster_view *view)
{
    for (uint32_t i = 0; i < view->member_count; i++)
        for (uint32_t k = i + 1; k < view->member_count; k++)
            if (muster_incarnation_is_equal(&view->members[i].incarnation,
                                            &view->members[k].incarnation))
                return true;
    for (uint32_t i = 1; i < view->verdict_count; i++)
        if (compare_verdicts(&view->verdicts[i - 1], &view->verdicts[i]) == 0)
            return true;
    return false;
}

/* The sources of all verdicts stand one after the other in the view's own block; each verdict's
 * pointer is set to its part. */
static void copy_arrays(struct muster_view *view, const struct muster_view *fields,
                        struct muster_chunk_source *sources)
{
    if (fields->member_count > 0)
        memcpy(view->members, fields->members, fields->member_count * sizeof(*view->members));
    if (fields->verdict_count > 0)
        memcpy(view->verdicts, fields->verdicts, fields->verdict_count * sizeof(*view->verdicts));
    for (uint32_t i = 0; i < view->verdict_count; i++) {
        struct muster_verdict *verdict = &view->verdicts[i];

        if (verdict->source_count > 0)
            memcpy(sources, verdict->sources, verdict->source_count * sizeof(*sources));
        verdict->sources = verdict->source_count > 0 ? sources : NULL;
        sources += verdict->source_count;
    }
}

enum muster_rc muster_view_new(struct muster_mem *mem, const struct muster_view *fields,
                               struct muster_view **ret_view)
{
    size_t members_bytes = fields->member_count * sizeof(struct muster_member);
    size_t verdicts_bytes = fields->verdict_count * sizeof(struct muster_verdict);
    size_t sources_bytes = count_sources(fields) * sizeof(struct muster_chunk_source);
    struct muster_view *view;
    uint8_t *arrays;

    if (!are_fields_valid(fields))
        return MUSTER_INVALID_ARGUMENT;
    /* One block: all element types are 8-byte aligned but the sources, which come last. */
    view = muster_mem_alloc(mem, sizeof(*view) + members_bytes + verdicts_bytes + sources_bytes);
    if (view == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    *view = *fields;
    view->references = 1;
    view->mem = mem;
    arrays = (uint8_t *)(view + 1);
    view->members = (struct muster_member *)(void *)arrays;
    view->verdicts = (struct muster_verdict *)(void *)(arrays + members_bytes);
    copy_arrays(view, fields,
                (struct muster_chunk_source *)(void *)(arrays + members_bytes + verdicts_bytes));
    qsort(view->members, view->member_count, sizeof(*view->members), compare_members);
    if (view->verdict_count > 0)
        qsort(view->verdicts, view->verdict_count, sizeof(*view->verdicts), compare_verdicts);
    if (has_duplicates(view)) {
        muster_mem_free(mem, view);
        return MUSTER_INVALID_ARGUMENT;
    }
    view->digest = view_digest(view);
    *ret_view = view;
    return MUSTER_OK;
}

/* The count is a plain integer: references are taken and given back in the loop only. */
struct muster_view *muster_view_ref(struct muster_view *view)
{
    MUSTER_ASSERT(view->references > 0);
    view->references++;
    return view;
}

void muster_view_unref(struct muster_view *view)
{
    if (view == NULL)
        return;
    MUSTER_ASSERT(view->references > 0);
    if (--view->references > 0)
        return;
    muster_mem_free(view->mem, view);
}

bool muster_view_find(const struct muster_view *view, const struct muster_incarnation *incarnation,
                      uint32_t *ret_rank)
{
    for (uint32_t rank = 0; rank < view->member_count; rank++) {
        if (!muster_incarnation_is_equal(&view->members[rank].incarnation, incarnation))
            continue;
        if (ret_rank != NULL)
            *ret_rank = rank;
        return true;
    }
    return false;
}

const struct muster_verdict *muster_view_verdict(const struct muster_view *view,
                                                 const struct muster_op_id *op)
{
    struct muster_verdict key = {.op = *op};

    if (view->verdict_count == 0)
        return NULL;
    return bsearch(&key, view->verdicts, view->verdict_count, sizeof(*view->verdicts),
                   compare_verdicts);
}
