/* Sources and pipelines as the areas sharding and batching write them; what they hold, as lists. */
#include "cases.h"

#include <string.h>

static const char *stage_name(const json_t *stage)
{
    const char *name = case_text(json_array_get(stage, 0));

    return name != NULL ? name : "";
}

static json_int_t stage_number(const json_t *stage)
{
    return json_integer_value(json_array_get(stage, 1));
}

static void append_copy(json_t *list, const json_t *value)
{
    json_array_append_new(list, json_deep_copy(value));
}

/* One element of each file in turn, of up to `cycle` files at a time. */
static json_t *interleave_files(const json_t *files, size_t cycle)
{
    json_t *elements = json_array();
    size_t slots[16], positions[16], next = 0, open = 0;

    for (; open < cycle && open < 16 && next < json_array_size(files); open++) {
        slots[open] = next++;
        positions[open] = 0;
    }
    for (size_t live = open, slot = 0; live > 0; slot = (slot + 1) % open) {
        const json_t *file = slots[slot] == SIZE_MAX ? NULL : json_array_get(files, slots[slot]);

        if (file == NULL)
            continue;
        if (positions[slot] < json_array_size(file)) {
            append_copy(elements, json_array_get(file, positions[slot]++));
        } else if (next < json_array_size(files)) {
            slots[slot] = next++;
            positions[slot] = 0;
        } else {
            slots[slot] = SIZE_MAX;
            live--;
        }
    }
    return elements;
}

static json_t *read_files(const json_t *source, const struct muster_shard *shard)
{
    const json_t *all = json_object_get(source, "files");
    const json_t *cycle = json_object_get(source, "cycle");
    json_t *files = json_array();
    json_t *elements;

    for (size_t i = 0; i < json_array_size(all); i++)
        if (shard == NULL || muster_shard_has(shard, i))
            append_copy(files, json_array_get(all, i));
    elements = interleave_files(files, cycle != NULL ? (size_t)json_integer_value(cycle) : 1);
    json_decref(files);
    return elements;
}

json_t *case_input_read(const json_t *source, const struct muster_shard *shard)
{
    json_t *elements;

    if (case_input_has_files(source))
        return read_files(source, shard);
    elements = json_array();
    for (json_int_t i = 0; i < json_integer_value(json_object_get(source, "n")); i++)
        json_array_append_new(elements, json_integer(i));
    return elements;
}

bool case_input_has_files(const json_t *source)
{
    return json_object_get(source, "files") != NULL;
}

bool case_input_has_mark(const json_t *stages)
{
    for (size_t i = 0; i < json_array_size(stages); i++)
        if (strcmp(stage_name(json_array_get(stages, i)), "shard") == 0)
            return true;
    return false;
}

json_t *case_input_part(const json_t *elements, uint64_t first, uint64_t size)
{
    json_t *part = json_array();

    for (uint64_t i = first; i < first + size && i < json_array_size(elements); i++)
        append_copy(part, json_array_get(elements, (size_t)i));
    return part;
}

json_t *case_input_batch(const json_t *elements, uint64_t size, bool is_remainder_dropped)
{
    json_t *batches = json_array();
    uint64_t count = json_array_size(elements);

    for (uint64_t first = 0; size > 0 && first < count; first += size)
        if (first + size <= count || !is_remainder_dropped)
            json_array_append_new(batches, case_input_part(elements, first, size));
    return batches;
}

json_t *case_input_flatten(const json_t *batches)
{
    json_t *elements = json_array();

    for (size_t i = 0; i < json_array_size(batches); i++)
        for (size_t k = 0; k < json_array_size(json_array_get(batches, i)); k++)
            append_copy(elements, json_array_get(json_array_get(batches, i), k));
    return elements;
}

json_t *case_input_shard(const json_t *elements, const struct muster_shard *shard)
{
    json_t *part = json_array();

    for (size_t i = 0; i < json_array_size(elements); i++)
        if (muster_shard_has(shard, i))
            append_copy(part, json_array_get(elements, i));
    return part;
}

static json_t *repeat_elements(const json_t *elements, json_int_t times)
{
    json_t *repeated = json_array();

    for (json_int_t i = 0; i < times; i++)
        json_array_extend(repeated, (json_t *)(uintptr_t)elements);
    return repeated;
}

/* A batch: to all that it holds. */
static json_t *add_to(const json_t *element, json_int_t addend)
{
    json_t *sums;

    if (!json_is_array(element))
        return json_integer(json_integer_value(element) + addend);
    sums = json_array();
    for (size_t i = 0; i < json_array_size(element); i++)
        json_array_append_new(sums, add_to(json_array_get(element, i), addend));
    return sums;
}

/* NULL: the stage is not known. */
static json_t *apply_stage(const json_t *elements, const json_t *stage,
                           const struct muster_shard *mark)
{
    const char *name = stage_name(stage);

    if (strcmp(name, "batch") == 0)
        return case_input_batch(elements, (uint64_t)stage_number(stage),
                                json_array_size(stage) > 2);
    if (strcmp(name, "unbatch") == 0)
        return case_input_flatten(elements);
    if (strcmp(name, "repeat") == 0)
        return repeat_elements(elements, stage_number(stage));
    if (strcmp(name, "take") == 0)
        return case_input_part(elements, 0, (uint64_t)stage_number(stage));
    if (strcmp(name, "map_add") == 0)
        return add_to(elements, stage_number(stage));
    if (strcmp(name, "shard") == 0 && mark != NULL)
        return case_input_shard(elements, mark);
    if (strcmp(name, "prefetch") == 0 || strcmp(name, "shard") == 0)
        return json_deep_copy(elements);
    return NULL;
}

json_t *case_input_apply(json_t *elements, const json_t *stages, const struct muster_shard *mark)
{
    for (size_t i = 0; elements != NULL && i < json_array_size(stages); i++) {
        json_t *after = apply_stage(elements, json_array_get(stages, i), mark);

        json_decref(elements);
        elements = after;
    }
    return elements;
}

uint64_t case_input_count_at_mark(const json_t *source, const json_t *stages)
{
    json_t *before = json_array();
    json_t *elements;
    uint64_t count;

    for (size_t i = 0; i < json_array_size(stages); i++) {
        const json_t *stage = json_array_get(stages, i);

        if (strcmp(stage_name(stage), "shard") == 0)
            break;
        append_copy(before, stage);
    }
    elements = case_input_apply(case_input_read(source, NULL), before, NULL);
    count = json_array_size(elements);
    json_decref(elements);
    json_decref(before);
    return count;
}

enum muster_rc case_input_batch_size(const json_t *stages, int64_t *ret_size,
                                     struct muster_error *ret_error)
{
    struct muster_input_stage known[16];
    size_t count = json_array_size(stages);
    bool is_whole = false; /* without a last partial batch: TensorFlow follows it through a map */

    if (count > sizeof(known) / sizeof(known[0]))
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "too many stages");
    for (size_t i = 0; i < count; i++) {
        const json_t *stage = json_array_get(stages, i);
        const char *name = stage_name(stage);

        known[i] = (struct muster_input_stage){.kind = MUSTER_INPUT_KEEP,
                                               .size = (uint64_t)stage_number(stage)};
        if (strcmp(name, "batch") == 0) {
            known[i].kind = MUSTER_INPUT_BATCH;
            is_whole = json_array_size(stage) > 2;
        } else if (strcmp(name, "unbatch") == 0) {
            known[i].kind = MUSTER_INPUT_UNBATCH;
        } else if (strncmp(name, "map", 3) == 0 && !is_whole) {
            known[i].kind = MUSTER_INPUT_MAP;
        }
    }
    return muster_input_batch_size(known, count, ret_size, ret_error);
}
