/* Views and members as protobuf messages (proto/membership.proto). All that comes from the wire is
 * checked here or in muster_view_new, so a view that was unpacked keeps every promise of
 * <muster/view.h>. */
#include "collective/view/view_proto.h"

#include <string.h>

#include "collective/view/op_id_proto.h"
#include "collective/view/plan_proto.h"
#include "net/link/peer_link.h"
#include "proto/guard.h"
#include "proto/membership.pb-c.h"

/* A view has at most so many members: has_duplicates and read_members are quadratic, and a peer's
 * bytes must not keep the loop busy for long. */
#define VIEW_MEMBERS_MAX 4096u
/* Every operation that was open at a freeze may have a verdict. */
#define VIEW_VERDICTS_MAX 65536u

/* The arrays that a packed view points into; one allocation each. The messages borrow the view's
 * texts, so the view must outlive them. */
struct packing {
    Muster__View view;
    struct muster_plan_message plan;
    Muster__Communication communication;
    Muster__Member *members;
    Muster__Member **member_pointers;
    char (*addresses)[MUSTER_ADDRESS_TEXT_BYTES];
    Muster__Verdict *verdicts;
    Muster__Verdict **verdict_pointers;
    Muster__OpId *ops;
    Muster__ChunkSource *sources;
    Muster__ChunkSource **source_pointers;
};

static void member_to_message(const struct muster_member *member,
                              char address[MUSTER_ADDRESS_TEXT_BYTES], Muster__Member *message)
{
    muster__member__init(message);
    message->incarnation.data = (uint8_t *)(uintptr_t)member->incarnation.bytes;
    message->incarnation.len = sizeof(member->incarnation.bytes);
    message->task_type = (char *)(uintptr_t)member->task_type;
    message->task_index = member->task_index;
    address[0] = '\0';
    if (member->address.family != MUSTER_ADDRESS_NONE)
        muster_address_format(&member->address, address);
    message->address = address;
    message->host_key = (char *)(uintptr_t)member->host_key;
    message->pid = member->pid;
    message->started = member->started;
    message->machine = member->machine;
    message->from_step = member->from_step;
    message->replica_count = member->replica_count;
    message->version = MUSTER_PEER_VERSION;
}

static bool copy_text(char *to, size_t room, const char *from)
{
    size_t length = strlen(from);

    if (length >= room)
        return false;
    memcpy(to, from, length + 1);
    return true;
}

/* The result is written only when all of the message is valid, so no caller sees half a member. */
static enum muster_rc member_from_message(const Muster__Member *message,
                                          struct muster_member *ret_member)
{
    struct muster_member member;

    memset(&member, 0, sizeof(member));
    /* The version comes first: of another one no field can be trusted to mean the same. */
    if (message->version != MUSTER_PEER_VERSION)
        return MUSTER_FAILED_PRECONDITION;
    if (message->incarnation.len != sizeof(member.incarnation.bytes))
        return MUSTER_INVALID_ARGUMENT;
    memcpy(member.incarnation.bytes, message->incarnation.data, sizeof(member.incarnation.bytes));
    if (!copy_text(member.task_type, sizeof(member.task_type), message->task_type) ||
        !copy_text(member.host_key, sizeof(member.host_key), message->host_key))
        return MUSTER_INVALID_ARGUMENT;
    if (message->address[0] != '\0' &&
        muster_address_parse(message->address, &member.address, NULL) != MUSTER_OK)
        return MUSTER_INVALID_ARGUMENT;
    member.task_index = message->task_index;
    member.pid = message->pid;
    member.started = message->started;
    member.machine = message->machine;
    member.from_step = message->from_step;
    member.replica_count = message->replica_count;
    *ret_member = member;
    return MUSTER_OK;
}

static Muster__Communication *communication_to_message(
    const struct muster_communication_options *options, Muster__Communication *memory)
{
    muster__communication__init(memory);
    memory->implementation = options->implementation;
    memory->bytes_per_pack = options->bytes_per_pack;
    memory->timeout_ns = options->timeout_ns;
    return memory;
}

/* Numbers out of range are refused with the view. */
static struct muster_communication_options communication_from_message(
    const Muster__Communication *message)
{
    if (message == NULL)
        return (struct muster_communication_options){.timeout_ns = 0};
    return (struct muster_communication_options){
        .implementation = (enum muster_communication)message->implementation,
        .bytes_per_pack = message->bytes_per_pack,
        .timeout_ns = message->timeout_ns,
    };
}

enum muster_rc muster_member_record_pack(const struct muster_member_record *record,
                                         struct muster_mem *mem, void **ret_bytes, size_t *ret_size)
{
    char address[MUSTER_ADDRESS_TEXT_BYTES];
    Muster__Communication communication;
    Muster__Member message;

    member_to_message(&record->member, address, &message);
    message.begins_after = record->begins_after;
    message.communication = communication_to_message(&record->communication, &communication);
    message.is_reproducible = record->is_reproducible;
    message.data_protection = record->data_protection;
    message.is_fixed_size = record->is_fixed_size;
    return muster_proto_pack(mem, &message, ret_bytes, ret_size);
}

enum muster_rc muster_member_record_unpack(struct muster_mem *mem, const void *bytes, size_t size,
                                           struct muster_member_record *ret_record)
{
    Muster__Member *message = NULL;
    enum muster_rc rc =
        muster_proto_unpack(mem, &muster__member__descriptor, bytes, size, NULL, &message, NULL);

    if (rc == MUSTER_OK)
        rc = member_from_message(message, &ret_record->member);
    if (rc == MUSTER_OK && (message->data_protection > MUSTER_DATA_AUTHENTICATED ||
                            (message->communication != NULL &&
                             message->communication->implementation > MUSTER_COMMUNICATION_NCCL)))
        rc = MUSTER_INVALID_ARGUMENT;
    if (rc == MUSTER_OK) {
        ret_record->begins_after = message->begins_after;
        ret_record->communication = communication_from_message(message->communication);
        ret_record->is_reproducible = message->is_reproducible;
        ret_record->data_protection = (enum muster_data_protection)message->data_protection;
        ret_record->is_fixed_size = message->is_fixed_size != 0;
    }
    muster_proto_free(message);
    return rc;
}

enum muster_rc muster_member_pack(const struct muster_member *member, struct muster_mem *mem,
                                  void **ret_bytes, size_t *ret_size)
{
    struct muster_member_record record = {.member = *member};

    return muster_member_record_pack(&record, mem, ret_bytes, ret_size);
}

enum muster_rc muster_member_unpack(struct muster_mem *mem, const void *bytes, size_t size,
                                    struct muster_member *ret_member)
{
    struct muster_member_record record;
    enum muster_rc rc = muster_member_record_unpack(mem, bytes, size, &record);

    if (rc == MUSTER_OK)
        *ret_member = record.member;
    return rc;
}

/* The numbers on the wire are the protocol's; those of the enum in memory may change. */
static Muster__VerdictKind kind_to_message(enum muster_verdict_kind kind)
{
    switch (kind) {
    case MUSTER_VERDICT_ADOPT:
        return MUSTER__VERDICT_KIND__VERDICT_ADOPT;
    case MUSTER_VERDICT_RETRY:
        return MUSTER__VERDICT_KIND__VERDICT_RETRY;
    case MUSTER_VERDICT_ABORTED:
        return MUSTER__VERDICT_KIND__VERDICT_ABORTED;
    }
    return MUSTER__VERDICT_KIND__VERDICT_UNSPECIFIED;
}

static bool kind_from_message(Muster__VerdictKind kind, enum muster_verdict_kind *ret_kind)
{
    if (kind == MUSTER__VERDICT_KIND__VERDICT_ADOPT)
        *ret_kind = MUSTER_VERDICT_ADOPT;
    else if (kind == MUSTER__VERDICT_KIND__VERDICT_RETRY)
        *ret_kind = MUSTER_VERDICT_RETRY;
    else if (kind == MUSTER__VERDICT_KIND__VERDICT_ABORTED)
        *ret_kind = MUSTER_VERDICT_ABORTED;
    else
        return false;
    return true;
}

static void packing_fini(struct packing *packing, struct muster_mem *mem)
{
    muster_mem_free(mem, packing->members);
    muster_mem_free(mem, (void *)packing->member_pointers);
    muster_mem_free(mem, packing->addresses);
    muster_mem_free(mem, packing->verdicts);
    muster_mem_free(mem, (void *)packing->verdict_pointers);
    muster_mem_free(mem, packing->ops);
    muster_mem_free(mem, packing->sources);
    muster_mem_free(mem, (void *)packing->source_pointers);
}

/* Memory that was allocated before a failure is freed by packing_fini, which the caller runs in any
 * case. */
static enum muster_rc packing_init(struct packing *packing, struct muster_mem *mem,
                                   const struct muster_view *view)
{
    size_t sources = 0;

    memset(packing, 0, sizeof(*packing));
    for (uint32_t i = 0; i < view->verdict_count; i++)
        sources += view->verdicts[i].source_count;
    packing->members = muster_mem_alloc_zero(mem, view->member_count, sizeof(*packing->members));
    packing->member_pointers =
        muster_mem_alloc_zero(mem, view->member_count, sizeof(*packing->member_pointers));
    packing->addresses =
        muster_mem_alloc_zero(mem, view->member_count, sizeof(*packing->addresses));
    packing->verdicts = muster_mem_alloc_zero(mem, view->verdict_count, sizeof(*packing->verdicts));
    packing->verdict_pointers =
        muster_mem_alloc_zero(mem, view->verdict_count, sizeof(*packing->verdict_pointers));
    packing->ops = muster_mem_alloc_zero(mem, view->verdict_count, sizeof(*packing->ops));
    packing->sources = muster_mem_alloc_zero(mem, sources, sizeof(*packing->sources));
    packing->source_pointers =
        muster_mem_alloc_zero(mem, sources, sizeof(*packing->source_pointers));
    if (packing->members == NULL || packing->member_pointers == NULL ||
        packing->addresses == NULL || packing->verdicts == NULL ||
        packing->verdict_pointers == NULL || packing->ops == NULL || packing->sources == NULL ||
        packing->source_pointers == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    return MUSTER_OK;
}

/* first_source is where this verdict's sources begin in the arrays that all verdicts share. */
static void fill_verdict(struct packing *packing, uint32_t index,
                         const struct muster_verdict *verdict, size_t first_source)
{
    Muster__Verdict *message = &packing->verdicts[index];
    Muster__OpId *op = &packing->ops[index];

    muster__verdict__init(message);
    muster_op_id_to_message(&verdict->op, op);
    message->op = op;
    message->descriptor = verdict->descriptor;
    message->kind = kind_to_message(verdict->kind);
    message->chunk_count = verdict->chunk_count;
    message->n_sources = verdict->source_count;
    message->sources = packing->source_pointers + first_source;
    for (uint32_t i = 0; i < verdict->source_count; i++) {
        Muster__ChunkSource *source = &packing->sources[first_source + i];

        muster__chunk_source__init(source);
        source->first = verdict->sources[i].first;
        source->count = verdict->sources[i].count;
        source->rank = verdict->sources[i].rank;
        packing->source_pointers[first_source + i] = source;
    }
    packing->verdict_pointers[index] = message;
}

static void fill_view(struct packing *packing, const struct muster_view *view)
{
    Muster__View *message = &packing->view;
    size_t source = 0;

    muster__view__init(message);
    message->job = (char *)(uintptr_t)view->job;
    message->epoch = view->epoch;
    message->chunk_bytes = view->plan.chunk_bytes;
    message->direct_max_bytes = view->plan.direct_max_bytes;
    message->plan = muster_plan_to_message(&view->plan, &packing->plan);
    message->communication =
        communication_to_message(&view->communication, &packing->communication);
    message->data_protection = view->data_protection;
    message->is_fixed_size = view->is_fixed_size;
    message->reason = (char *)(uintptr_t)view->reason;
    message->is_below_min = view->is_below_min;
    message->is_done = view->is_done;
    message->done_step = view->done_step;
    message->done_calls = view->done_calls;
    message->done_by = (char *)(uintptr_t)view->done_by;
    message->begun_step = view->begun_step;
    message->begin_epoch = view->begin_epoch;
    message->is_stopping = view->is_stopping;
    message->stop_step = view->stop_step;
    message->is_state_lost = view->is_state_lost;
    for (uint32_t i = 0; i < view->member_count; i++) {
        member_to_message(&view->members[i], packing->addresses[i], &packing->members[i]);
        packing->member_pointers[i] = &packing->members[i];
    }
    message->n_members = view->member_count;
    message->members = packing->member_pointers;
    for (uint32_t i = 0; i < view->verdict_count; i++) {
        fill_verdict(packing, i, &view->verdicts[i], source);
        source += view->verdicts[i].source_count;
    }
    message->n_verdicts = view->verdict_count;
    message->verdicts = packing->verdict_pointers;
}

/* The message borrows from the view and from `packing`: it is packed before either goes. */
enum muster_rc muster_view_pack(const struct muster_view *view, struct muster_mem *mem,
                                void **ret_bytes, size_t *ret_size)
{
    struct packing packing;
    enum muster_rc rc = packing_init(&packing, mem, view);

    if (rc == MUSTER_OK) {
        fill_view(&packing, view);
        rc = muster_proto_pack(mem, &packing.view, ret_bytes, ret_size);
    }
    packing_fini(&packing, mem);
    return rc;
}

/* Chunks and ranks of a verdict are indexes later on, so ranges are checked here without overflow:
 * first + count is never computed. */
static enum muster_rc read_sources(const Muster__Verdict *message, uint32_t member_count,
                                   struct muster_verdict *verdict)
{
    for (size_t i = 0; i < message->n_sources; i++) {
        const Muster__ChunkSource *source = message->sources[i];

        if (source->rank >= member_count || source->count == 0 ||
            source->first >= message->chunk_count ||
            source->count > message->chunk_count - source->first)
            return MUSTER_INVALID_ARGUMENT;
        verdict->sources[i].first = source->first;
        verdict->sources[i].count = source->count;
        verdict->sources[i].rank = source->rank;
    }
    verdict->source_count = (uint32_t)message->n_sources;
    return MUSTER_OK;
}

static enum muster_rc read_verdict(struct muster_mem *mem, const Muster__Verdict *message,
                                   uint32_t member_count, struct muster_verdict *verdict)
{
    if (message->op == NULL || !kind_from_message(message->kind, &verdict->kind))
        return MUSTER_INVALID_ARGUMENT;
    muster_op_id_from_message(message->op, &verdict->op);
    verdict->descriptor = message->descriptor;
    verdict->chunk_count = message->chunk_count;
    if (message->n_sources == 0)
        return MUSTER_OK;
    verdict->sources = muster_mem_alloc_zero(mem, message->n_sources, sizeof(*verdict->sources));
    if (verdict->sources == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    return read_sources(message, member_count, verdict);
}

/* Ranks in the sources count on the order of the members, so a view out of order is refused, not
 * sorted. */
static enum muster_rc read_members(const Muster__View *message, struct muster_view *fields)
{
    for (uint32_t i = 0; i < fields->member_count; i++) {
        enum muster_rc rc = member_from_message(message->members[i], &fields->members[i]);

        if (rc != MUSTER_OK)
            return rc;
        if (i > 0 && muster_member_compare(&fields->members[i - 1], &fields->members[i]) >= 0)
            return MUSTER_INVALID_ARGUMENT;
        for (uint32_t k = 0; k < i; k++)
            if (muster_incarnation_is_equal(&fields->members[i].incarnation,
                                            &fields->members[k].incarnation))
                return MUSTER_INVALID_ARGUMENT;
    }
    return MUSTER_OK;
}

/* Strictly rising ids also rule out two verdicts for one operation. */
static enum muster_rc read_verdicts(struct muster_mem *mem, const Muster__View *message,
                                    struct muster_view *fields)
{
    for (uint32_t i = 0; i < fields->verdict_count; i++) {
        struct muster_verdict *verdict = &fields->verdicts[i];
        enum muster_rc rc = read_verdict(mem, message->verdicts[i], fields->member_count, verdict);

        if (rc != MUSTER_OK)
            return rc;
        if (i > 0 && muster_op_id_compare(&verdict[-1].op, &verdict->op) >= 0)
            return MUSTER_INVALID_ARGUMENT;
    }
    return MUSTER_OK;
}

static enum muster_rc read_view(struct muster_mem *mem, const Muster__View *message,
                                struct muster_view *fields)
{
    enum muster_rc rc;

    if (message->epoch == 0 || message->n_members > VIEW_MEMBERS_MAX ||
        message->n_verdicts > VIEW_VERDICTS_MAX ||
        !copy_text(fields->job, sizeof(fields->job), message->job) ||
        !copy_text(fields->reason, sizeof(fields->reason), message->reason) ||
        !copy_text(fields->done_by, sizeof(fields->done_by), message->done_by))
        return MUSTER_INVALID_ARGUMENT;
    fields->epoch = message->epoch;
    fields->is_below_min = message->is_below_min != 0;
    fields->is_done = message->is_done != 0;
    fields->done_step = message->done_step;
    fields->done_calls = message->done_calls;
    fields->begun_step = message->begun_step;
    fields->begin_epoch = message->begin_epoch;
    fields->is_stopping = message->is_stopping != 0;
    fields->stop_step = message->stop_step;
    fields->is_state_lost = message->is_state_lost != 0;
    fields->plan.chunk_bytes = message->chunk_bytes;
    fields->plan.direct_max_bytes = message->direct_max_bytes;
    if (!muster_plan_from_message(message->plan, &fields->plan))
        return MUSTER_INVALID_ARGUMENT;
    fields->communication = communication_from_message(message->communication);
    fields->data_protection = (enum muster_data_protection)message->data_protection;
    fields->is_fixed_size = message->is_fixed_size != 0;
    fields->members = muster_mem_alloc_zero(mem, message->n_members, sizeof(*fields->members));
    fields->verdicts = muster_mem_alloc_zero(mem, message->n_verdicts, sizeof(*fields->verdicts));
    if (fields->members == NULL || fields->verdicts == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    fields->member_count = (uint32_t)message->n_members;
    fields->verdict_count = (uint32_t)message->n_verdicts;
    rc = read_members(message, fields);
    return rc != MUSTER_OK ? rc : read_verdicts(mem, message, fields);
}

/* muster_view_new has made a deep copy; counts are 0 for what was not read. */
static void fields_fini(struct muster_mem *mem, struct muster_view *fields)
{
    for (uint32_t i = 0; i < fields->verdict_count; i++)
        muster_mem_free(mem, fields->verdicts[i].sources);
    muster_mem_free(mem, fields->verdicts);
    muster_mem_free(mem, fields->members);
}

enum muster_rc muster_view_unpack(struct muster_mem *mem, const void *bytes, size_t size,
                                  struct muster_view **ret_view)
{
    Muster__View *message = NULL;
    struct muster_view fields;
    enum muster_rc rc;

    memset(&fields, 0, sizeof(fields));
    rc = muster_proto_unpack(mem, &muster__view__descriptor, bytes, size, NULL, &message, NULL);
    if (rc == MUSTER_OK)
        rc = read_view(mem, message, &fields);
    if (rc == MUSTER_OK)
        rc = muster_view_new(mem, &fields, ret_view);
    fields_fini(mem, &fields);
    muster_proto_free(message);
    return rc;
}
