/* A table that is opened with another schema than it has: the error names what differs, and both sides. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "params/store/table.h"

static const char *rounds_name(const struct muster_params_store_table *table)
{
    if (table->is_by_round == 0)
        return "not by round";
    return table->is_by_round == MUSTER_PARAMS_ROUND_CARRIED
               ? "by round with late pushes carried (is_round_carried)"
               : "by round without is_round_carried";
}

/* Parts of a schema that are numbers, or words for them. */
static const struct schema_part {
    const char *name;
    size_t offset, bytes;
    enum { PART_IS_NUMBER, PART_IS_FLOAT, PART_IS_INIT, PART_IS_EVICT } kind;
} parts[] = {
#define PART(field, how)                                                                           \
    {                                                                                              \
        .name = #field, .offset = offsetof(struct muster_params_store_table, field),               \
        .bytes = sizeof(((struct muster_params_store_table *)0)->field), .kind = (how)             \
    }
    PART(learning_rate, PART_IS_FLOAT),
    PART(beta1, PART_IS_FLOAT),
    PART(beta2, PART_IS_FLOAT),
    PART(epsilon, PART_IS_FLOAT),
    PART(l1, PART_IS_FLOAT),
    PART(l2, PART_IS_FLOAT),
    PART(init, PART_IS_INIT),
    PART(init_scale, PART_IS_FLOAT),
    PART(init_seed, PART_IS_NUMBER),
    PART(is_round_mean, PART_IS_NUMBER),
    PART(round_quorum, PART_IS_NUMBER),
    PART(round_grace_ns, PART_IS_NUMBER),
    PART(admit_after, PART_IS_NUMBER),
    PART(admit_share, PART_IS_NUMBER),
    PART(ttl_clocks, PART_IS_NUMBER),
    PART(rows_max, PART_IS_NUMBER),
    PART(evict_by, PART_IS_EVICT),
#undef PART
};

#define PART_TEXT_BYTES 32u

static void part_format(const struct schema_part *part, const void *value, int digits,
                        char text[PART_TEXT_BYTES])
{
    static const char *const inits[MUSTER_PARAMS_INIT_COUNT] = {"zero", "constant", "uniform",
                                                                "normal"};
    uint64_t number = 0; /* little endian, as all memory of regions is */
    float real;

    if (part->kind == PART_IS_FLOAT) {
        memcpy(&real, value, sizeof(real));
        snprintf(text, PART_TEXT_BYTES, "%.*g", digits, (double)real);
        return;
    }
    memcpy(&number, value, part->bytes);
    if (part->kind == PART_IS_INIT)
        snprintf(text, PART_TEXT_BYTES, "%s", inits[number % MUSTER_PARAMS_INIT_COUNT]);
    else if (part->kind == PART_IS_EVICT)
        snprintf(text, PART_TEXT_BYTES, "%s",
                 muster_params_evict_name((enum muster_params_evict)number));
    else
        snprintf(text, PART_TEXT_BYTES, "%llu", (unsigned long long)number);
}

/* Nine digits tell any two floats apart; most differ in the first six. */
static enum muster_rc part_refuse(const struct muster_params_store_table *have,
                                  const struct muster_params_store_table *asked,
                                  const struct schema_part *part, struct muster_error *ret_error)
{
    const void *values[] = {(const uint8_t *)have + part->offset,
                            (const uint8_t *)asked + part->offset};
    char texts[2][PART_TEXT_BYTES];

    for (int digits = 6; digits <= 9; digits += 3) {
        for (int i = 0; i < 2; i++)
            part_format(part, values[i], digits, texts[i]);
        if (strcmp(texts[0], texts[1]) != 0)
            break;
    }
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "table %s has %s %s, the caller's schema has %s", have->name,
                            part->name, texts[0], texts[1]);
}

static enum muster_rc difference_tell(const struct muster_params_store_table *have,
                                      const struct muster_params_store_table *asked,
                                      struct muster_error *ret_error)
{
    if (have->row_elements != asked->row_elements)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s has rows of %u elements, the caller's schema has %u",
                                have->name, have->row_elements, asked->row_elements);
    if (have->optimizer != asked->optimizer)
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "table %s has optimizer %s, the caller's schema has %s", have->name,
            muster_params_optimizer_name((enum muster_params_optimizer)have->optimizer),
            muster_params_optimizer_name((enum muster_params_optimizer)asked->optimizer));
    if (have->wire_dtype != asked->wire_dtype)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s has values of %s on the wire, the caller's schema has %s",
                                have->name, muster_dtype_name((enum muster_dtype)have->wire_dtype),
                                muster_dtype_name((enum muster_dtype)asked->wire_dtype));
    if (have->tensor_elements != asked->tensor_elements)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s is a tensor of %llu elements (0: it has rows), the "
                                "caller's schema has %llu",
                                have->name, (unsigned long long)have->tensor_elements,
                                (unsigned long long)asked->tensor_elements);
    if (have->is_by_round != asked->is_by_round)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s is %s, the caller's schema is %s", have->name,
                                rounds_name(have), rounds_name(asked));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        size_t at = parts[i].offset;

        if (memcmp((const uint8_t *)have + at, (const uint8_t *)asked + at, parts[i].bytes) != 0)
            return part_refuse(have, asked, &parts[i], ret_error);
    }
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "table %s has another schema (%016llx) than the caller's (%016llx)",
                            have->name, (unsigned long long)have->descriptor,
                            (unsigned long long)asked->descriptor);
}

enum muster_rc muster_params_table_refuse(const struct muster_params_store_table *have,
                                          const struct muster_params_store_table *asked,
                                          struct muster_error *ret_error)
{
    struct muster_error why;

    return muster_error_set(ret_error, difference_tell(have, asked, &why),
                            "%.190s; open it with its schema, or under another name", why.text);
}
