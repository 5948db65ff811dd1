/* Slots of sources, in segments of their own. */
#include "params/store/source.h"

#include <stdatomic.h>
#include <string.h>

#include <muster/hash.h>

static size_t source_bytes(const struct muster_params_region *region)
{
    return sizeof(struct muster_params_source) + region->head->shard_count * sizeof(uint64_t);
}

static uint32_t sources_per_segment(const struct muster_params_region *region)
{
    return (uint32_t)(MUSTER_PARAMS_SEGMENT_BYTES / source_bytes(region));
}

struct muster_params_source *muster_params_source_at(const struct muster_params_region *region,
                                                     uint64_t slot)
{
    uint32_t per_segment = sources_per_segment(region);
    uint64_t offset;

    if (slot >= region->head->source_count)
        return NULL;
    offset =
        (uint64_t)region->head->source_segments[slot / per_segment] * MUSTER_PARAMS_SEGMENT_BYTES;
    return muster_params_at(region, offset + slot % per_segment * source_bytes(region));
}

static uint32_t *bucket_of(const struct muster_params_region *region,
                           const struct muster_incarnation *id)
{
    uint64_t hash = muster_hash64(id->bytes, sizeof(id->bytes), 0);

    return &region->head->source_buckets[hash % MUSTER_PARAMS_SOURCE_BUCKETS];
}

struct muster_params_source *muster_params_source_find(const struct muster_params_region *region,
                                                       const struct muster_incarnation *id,
                                                       uint64_t *ret_slot)
{
    for (uint32_t at = *bucket_of(region, id); at != 0;) {
        struct muster_params_source *source = muster_params_source_at(region, at - 1);

        if (muster_incarnation_is_equal(&source->id, id)) {
            *ret_slot = at - 1;
            return source;
        }
        at = source->next;
    }
    return NULL;
}

uint32_t muster_params_source_live(const struct muster_params_region *region)
{
    return region->head->source_count - region->head->source_free_count;
}

/* The place that leads to the slot in the bucket of id; NULL: none does. */
static uint32_t *link_to(const struct muster_params_region *region,
                         const struct muster_incarnation *id, uint64_t slot)
{
    uint32_t *at = bucket_of(region, id);

    while (*at != 0 && *at != slot + 1)
        at = &muster_params_source_at(region, *at - 1)->next;
    return *at != 0 ? at : NULL;
}

void muster_params_sources_complete(struct muster_params_region *region,
                                    const struct muster_params_intent *intent)
{
    struct muster_params_region_head *head = region->head;

    muster_params_segment_take(region, intent->segment, 1, MUSTER_PARAMS_SEGMENT_SOURCES, 0);
    head->source_segments[intent->count] = intent->segment;
    MUSTER_PARAMS_STORE(&head->source_segment_count, (uint32_t)(intent->count + 1));
}

static enum muster_rc sources_add(struct muster_params_region *region)
{
    struct muster_params_intent intent = {.kind = MUSTER_PARAMS_INTENT_SOURCES,
                                          .segment = muster_params_segment_find(region, 1),
                                          .count = region->head->source_segment_count};

    if (intent.segment == 0 || intent.count == MUSTER_PARAMS_SOURCE_SEGMENTS_MAX)
        return MUSTER_RESOURCE_EXHAUSTED;
    muster_params_intent_begin(region, &intent);
    muster_params_sources_complete(region, &region->head->intent);
    muster_params_intent_end(region);
    return MUSTER_OK;
}

/* The count rises before the slot is filled, since only slots below it can be addressed; a slot
 * without a generation is free. The slot leaves the free ones before `next` leads elsewhere. */
void muster_params_source_complete(struct muster_params_region *region,
                                   const struct muster_params_intent *intent)
{
    struct muster_params_region_head *head = region->head;
    struct muster_params_source *source;
    uint32_t *bucket = bucket_of(region, &intent->id);

    if (intent->count >= head->source_count)
        MUSTER_PARAMS_STORE(&head->source_count, (uint32_t)(intent->count + 1));
    MUSTER_PARAMS_STORE(&head->source_free, intent->page);
    head->source_free_count = intent->shard;
    source = muster_params_source_at(region, intent->count);
    source->id = intent->id;
    source->process = intent->key;
    source->link = (uint32_t)intent->table_rows;
    source->flags = intent->run;
    if (link_to(region, &intent->id, intent->count) == NULL) {
        source->next = *bucket;
        MUSTER_PARAMS_STORE(bucket, (uint32_t)intent->count + 1);
    }
    MUSTER_PARAMS_STORE(&source->generation, intent->total);
}

/* The slot leaves its bucket first: `next` leads there until then, and along the free ones from then on. */
void muster_params_source_free_complete(struct muster_params_region *region,
                                        const struct muster_params_intent *intent)
{
    struct muster_params_region_head *head = region->head;
    struct muster_params_source *source = muster_params_source_at(region, intent->count);
    uint32_t *link = link_to(region, &intent->id, intent->count);

    if (link != NULL)
        MUSTER_PARAMS_STORE(link, source->next);
    if (head->source_free != intent->count + 1) {
        memset(source, 0, source_bytes(region));
        source->next = head->source_free;
        MUSTER_PARAMS_STORE(&head->source_free, (uint32_t)intent->count + 1);
    }
    head->source_free_count = intent->shard;
}

/* The low half of a generation counts processes, the high half the further links of one. */
#define GENERATION_LINK ((uint64_t)1 << 32)

static void source_fill(struct muster_params_region *region,
                        const struct muster_params_intent *intent)
{
    muster_params_intent_begin(region, intent);
    muster_params_source_complete(region, &region->head->intent);
    muster_params_intent_end(region);
}

/* The slot and generation of intent: a slot is added where there is none. */
static enum muster_rc source_keep(struct muster_params_region *region,
                                  struct muster_params_intent *intent, uint64_t *ret_slot)
{
    uint64_t room = (uint64_t)region->head->source_segment_count * sources_per_segment(region);
    uint32_t max = region->sources_max != 0 ? region->sources_max : MUSTER_PARAMS_SOURCES_MAX;
    const struct muster_params_source *source = muster_params_source_at(region, intent->count);
    bool is_new = source == NULL || source->generation == 0;
    enum muster_rc rc = MUSTER_OK;

    if (is_new && muster_params_source_live(region) >= max)
        return MUSTER_RESOURCE_EXHAUSTED;
    if (intent->count == room)
        rc = sources_add(region);
    if (rc != MUSTER_OK)
        return rc;
    source_fill(region, intent);
    *ret_slot = intent->count;
    return MUSTER_OK;
}

/* The slot that the source has, or a free one, or the next one. */
static struct muster_params_intent intent_of(const struct muster_params_region *region,
                                             const struct muster_params_opener *opener,
                                             const struct muster_params_source **ret_source)
{
    const struct muster_params_region_head *head = region->head;
    struct muster_params_intent intent = {.kind = MUSTER_PARAMS_INTENT_SOURCE,
                                          .count = head->source_count,
                                          .shard = head->source_free_count,
                                          .page = head->source_free,
                                          .run = opener->is_named ? MUSTER_PARAMS_SOURCE_NAMED : 0,
                                          .id = opener->id,
                                          .key = opener->process,
                                          .table_rows = opener->link,
                                          .total = (uint32_t)opener->generation};
    const struct muster_params_source *source =
        muster_params_source_find(region, &opener->id, &intent.count);

    *ret_source = source;
    if (source != NULL) {
        intent.run |= source->flags;
    } else if (head->source_free != 0) {
        intent.count = head->source_free - 1;
        intent.page = muster_params_source_at(region, intent.count)->next;
        intent.shard--;
    }
    return intent;
}

/* A process that has pushed to what was forgotten since would push twice what it sends again. */
static bool is_forgotten(const struct muster_params_source *source,
                         const struct muster_params_opener *opener)
{
    return (source->flags & MUSTER_PARAMS_SOURCE_FORGOTTEN) != 0 && opener->generation != 0 &&
           !opener->is_named;
}

static bool is_of_process(const struct muster_params_source *source, uint64_t process)
{
    return process != 0 && source->process == process;
}

bool muster_params_source_is_of(const struct muster_params_region *region,
                                const struct muster_params_opener *opener)
{
    uint64_t slot;
    const struct muster_params_source *source =
        muster_params_source_find(region, &opener->id, &slot);

    return source != NULL && is_of_process(source, opener->process);
}

/* The process that has the source names it over a further link. Links are read in any order: one that comes
 * late must not end a younger one. */
static enum muster_rc source_go_on(struct muster_params_region *region,
                                   const struct muster_params_source *source,
                                   struct muster_params_intent *intent, uint64_t *ret_slot)
{
    if (is_of_process(source, intent->key) && intent->table_rows < source->link)
        return MUSTER_UNAVAILABLE;
    intent->total = source->generation + GENERATION_LINK;
    return source_keep(region, intent, ret_slot);
}

enum muster_rc muster_params_source_open(struct muster_params_region *region,
                                         const struct muster_params_opener *opener,
                                         uint64_t *ret_slot)
{
    const struct muster_params_source *source;
    struct muster_params_intent intent = intent_of(region, opener, &source);

    intent.run &= ~MUSTER_PARAMS_SOURCE_FORGOTTEN; /* the process has not pushed yet */
    if (source != NULL && is_of_process(source, opener->process))
        return source_go_on(region, source, &intent, ret_slot);
    intent.total = (uint32_t)(source != NULL ? source->generation : 0) + 1;
    return source_keep(region, &intent, ret_slot);
}

void muster_params_source_confirm(struct muster_params_region *region, uint64_t slot,
                                  uint64_t generation)
{
    struct muster_params_source *source = muster_params_source_at(region, slot);

    if ((uint32_t)generation > source->confirmed)
        MUSTER_PARAMS_STORE(&source->confirmed, (uint32_t)generation);
}

/* A server that was the home, and does not know yet that another one is, raises the generation for processes that
 * never hear of it. The home gives the same numbers to others. */
static bool is_void(const struct muster_params_source *source,
                    const struct muster_params_opener *opener)
{
    return opener->home_is_elsewhere && (uint32_t)opener->generation >= source->confirmed;
}

/* A home that was one no longer may have raised the generation for the process that asks now: it goes on there. */
static enum muster_rc source_take(struct muster_params_region *region,
                                  const struct muster_params_opener *opener, uint64_t *ret_slot)
{
    const struct muster_params_source *source;
    struct muster_params_intent intent = intent_of(region, opener, &source);

    if (source != NULL && is_forgotten(source, opener))
        return MUSTER_FAILED_PRECONDITION;
    if (source != NULL && (is_of_process(source, opener->process) ||
                           (uint32_t)source->generation == (uint32_t)opener->generation))
        return source_go_on(region, source, &intent, ret_slot);
    if (source != NULL && (uint32_t)source->generation > (uint32_t)opener->generation) {
        if (!is_void(source, opener))
            return MUSTER_ABORTED;
        /* Links of a void generation with the same number stay refused. */
        intent.total += (source->generation & ~(uint64_t)UINT32_MAX) + GENERATION_LINK;
    }
    return source_keep(region, &intent, ret_slot);
}

enum muster_rc muster_params_source_adopt(struct muster_params_region *region,
                                          const struct muster_params_opener *opener,
                                          uint64_t *ret_slot)
{
    enum muster_rc rc = source_take(region, opener, ret_slot);

    if (rc == MUSTER_OK)
        muster_params_source_confirm(region, *ret_slot, opener->generation);
    return rc;
}

enum muster_rc muster_params_source_learn(struct muster_params_region *region,
                                          const struct muster_params_opener *opener,
                                          uint64_t *ret_slot)
{
    struct muster_params_source *source = muster_params_source_find(region, &opener->id, ret_slot);
    uint32_t generation = source != NULL ? (uint32_t)source->generation : 0;

    if (source != NULL && opener->is_named)
        MUSTER_PARAMS_STORE(&source->flags, source->flags | MUSTER_PARAMS_SOURCE_NAMED);
    if (source != NULL &&
        (is_of_process(source, opener->process) ||
         (source->flags & MUSTER_PARAMS_SOURCE_FORGOTTEN) != 0 ||
         generation == (uint32_t)opener->generation ||
         (generation > (uint32_t)opener->generation && !is_void(source, opener))))
        return MUSTER_OK;
    return source_take(region, opener, ret_slot);
}

enum muster_rc muster_params_source_reopen(struct muster_params_region *region,
                                           const struct muster_params_opener *opener,
                                           uint64_t *ret_slot)
{
    uint64_t slot;

    if (muster_params_source_find(region, &opener->id, &slot) == NULL)
        return MUSTER_FAILED_PRECONDITION;
    if (!muster_params_source_is_of(region, opener) &&
        (uint32_t)muster_params_source_at(region, slot)->generation != (uint32_t)opener->generation)
        return MUSTER_ABORTED;
    return muster_params_source_adopt(region, opener, ret_slot);
}

void muster_params_source_forget(struct muster_params_region *region, uint64_t slot,
                                 const uint8_t *shards)
{
    struct muster_params_source *source = muster_params_source_at(region, slot);

    MUSTER_PARAMS_STORE(&source->flags, source->flags | MUSTER_PARAMS_SOURCE_FORGOTTEN);
    MUSTER_PARAMS_STORE(&region->head->undo.position_before, UINT64_MAX);
    for (uint32_t shard = 0; shard < region->head->shard_count; shard++) {
        if ((shards[shard / 8] & 1u << shard % 8) == 0)
            continue;
        if (region->changed != NULL)
            region->changed[shard] = 1;
        MUSTER_PARAMS_STORE(&source->positions[shard], 0);
    }
}

void muster_params_source_free(struct muster_params_region *region, uint64_t slot)
{
    struct muster_params_intent intent = {.kind = MUSTER_PARAMS_INTENT_SOURCE_FREE,
                                          .count = slot,
                                          .shard = region->head->source_free_count + 1,
                                          .id = muster_params_source_at(region, slot)->id};

    MUSTER_PARAMS_STORE(&region->head->undo.position_before, UINT64_MAX);
    muster_params_intent_begin(region, &intent);
    muster_params_source_free_complete(region, &region->head->intent);
    muster_params_intent_end(region);
}

/* A removal that some copies have not heard of, because their primary died, makes them differ. */
static uint64_t removals_digest(const struct muster_params_region *region, uint32_t shard)
{
    uint32_t removals = region->head->removals[shard];

    return removals != 0 ? muster_hash64(&removals, sizeof(removals), shard) : 0;
}

uint64_t muster_params_positions_digest(const struct muster_params_region *region, uint32_t shard)
{
    uint64_t sum = removals_digest(region, shard);

    for (uint64_t slot = 0; slot < region->head->source_count; slot++) {
        const struct muster_params_source *source = muster_params_source_at(region, slot);

        if (source->positions[shard] != 0)
            sum +=
                muster_hash64(source->id.bytes, sizeof(source->id.bytes), source->positions[shard]);
    }
    return sum;
}

void muster_params_positions_digests(const struct muster_params_region *region,
                                     uint64_t *ret_digests)
{
    uint32_t shard_count = region->head->shard_count;

    for (uint32_t shard = 0; shard < shard_count; shard++)
        ret_digests[shard] = removals_digest(region, shard);
    for (uint64_t slot = 0; slot < region->head->source_count; slot++) {
        const struct muster_params_source *source = muster_params_source_at(region, slot);

        for (uint32_t shard = 0; shard < shard_count; shard++) {
            if (source->positions[shard] != 0)
                ret_digests[shard] += muster_hash64(source->id.bytes, sizeof(source->id.bytes),
                                                    source->positions[shard]);
        }
    }
}

/* A push may be applied in part, and its process dead. Pushes that were refused have used numbers for
 * no row, so the newest whole push does not tell which it is; the positions do. */
uint64_t muster_params_source_sequence(const struct muster_params_region *region,
                                       const struct muster_params_source *source)
{
    uint64_t sequence = source->pushed + 1;

    for (uint32_t shard = 0; shard < region->head->shard_count; shard++) {
        uint64_t position = source->positions[shard];
        uint64_t unused = (position >> 16) + ((position & UINT16_MAX) != 0);

        sequence = unused > sequence ? unused : sequence;
    }
    return sequence;
}
