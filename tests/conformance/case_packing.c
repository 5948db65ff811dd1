/* Cases of kind packing: which tensors of a list travel together. */
#include "cases.h"

#include <string.h>

#include <muster/collective.h>

#include "collective/kernel/packing.h"

enum { TENSORS_MAX = 16 };

/* Only the size of an element counts here. */
static enum muster_dtype dtype_of(const char *name)
{
    static const struct {
        const char *name;
        enum muster_dtype dtype;
    } types[] = {
        {"float32", MUSTER_F32},   {"float64", MUSTER_F64},   {"float16", MUSTER_F16},
        {"bfloat16", MUSTER_BF16}, {"int8", MUSTER_I8},       {"uint8", MUSTER_U8},
        {"bool", MUSTER_U8},       {"int16", MUSTER_I16},     {"uint16", MUSTER_U16},
        {"int32", MUSTER_I32},     {"uint32", MUSTER_U32},    {"int64", MUSTER_I64},
        {"uint64", MUSTER_U64},    {"complex64", MUSTER_F64},
    };

    for (size_t i = 0; name != NULL && i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].dtype;
    return MUSTER_F32;
}

/* False: a dimension is not known. */
static bool read_tensor(const json_t *text, struct muster_tensor *ret_tensor)
{
    const json_t *shape = json_object_get(text, "shape");
    uint64_t count = 1;
    bool is_known = true;

    for (size_t i = 0; i < json_array_size(shape); i++) {
        is_known = is_known && json_is_integer(json_array_get(shape, i));
        count *= (uint64_t)json_integer_value(json_array_get(shape, i));
    }
    *ret_tensor = (struct muster_tensor){
        .count = count, .dtype = dtype_of(case_text(json_object_get(text, "dtype")))};
    return is_known;
}

/* Tensors in C have a size, so a list with an unknown one is a list that is not cut. */
static json_t *find_packs(struct case_run *run)
{
    const json_t *listed = case_argument(run->one, "tensors");
    uint64_t bytes = (uint64_t)json_integer_value(case_argument(run->one, "bytes_per_pack"));
    struct muster_tensor tensors[TENSORS_MAX];
    size_t count = json_array_size(listed);
    json_t *packs = json_array();

    if (count > TENSORS_MAX) {
        case_fail(run, "more than %d tensors", TENSORS_MAX);
        return packs;
    }
    for (size_t i = 0; i < count; i++)
        if (!read_tensor(json_array_get(listed, i), &tensors[i]))
            bytes = 0;
    for (size_t end = count; end > 0;) {
        struct muster_pack pack = muster_pack_before(tensors, end, bytes);
        json_t *members = json_array();

        for (size_t i = pack.end; i > pack.first; i--)
            json_array_append_new(members, json_integer((json_int_t)i - 1));
        json_array_append_new(packs, members);
        end = pack.first;
    }
    return packs;
}

void case_packing(struct case_run *run)
{
    const json_t *calls = case_calls(run);

    for (size_t i = 0; i < json_array_size(calls) && !run->is_failed; i++) {
        struct case_outcome outcome = {.value = find_packs(run)};

        case_judge(run, "packs", json_array_get(calls, i), &outcome);
    }
}
