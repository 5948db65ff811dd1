/* Which algorithm runs an operation: a pure function of what all members know alike. The order of
 * preference is: what the operation allows at all, the forced algorithm, the rows of the view's
 * table, then what is built in here. */
#include "collective/plan/plan.h"

#include <string.h>

static const char *const names[] = {
    [MUSTER_ALGORITHM_AUTO] = "auto",
    [MUSTER_ALGORITHM_DIRECT] = "direct",
    [MUSTER_ALGORITHM_RING] = "ring",
    [MUSTER_ALGORITHM_HALVING] = "halving",
    [MUSTER_ALGORITHM_DOUBLE_TREE] = "double_tree",
    [MUSTER_ALGORITHM_BLOCKS] = "blocks",
    [MUSTER_ALGORITHM_TWO_LEVEL] = "two_level",
    [MUSTER_ALGORITHM_EXCHANGE] = "exchange",
    [MUSTER_ALGORITHM_FLAT] = "flat",
    [MUSTER_ALGORITHM_HOST] = "host",
};

/* Up to so many members an exchange of everything may have direct_max_bytes of each; beyond that
 * the bound on what one member receives stays where it is. */
#define DIRECT_MEMBERS 8u

#define NAME_COUNT (sizeof(names) / sizeof(names[0]))

/* The built-in table, which `muster bench --tune` replaces: an all_reduce above direct_max_bytes.
 * The first row that matches wins, so rows for more members and fewer bytes stand first. */
static const struct muster_plan_row built_in[] = {
    {.kind = MUSTER_OP_ALL_REDUCE,
     .span = MUSTER_SPAN_HOSTS,
     .algorithm = MUSTER_ALGORITHM_TWO_LEVEL,
     .n_min = 4},
    /* A ring has 2 (n - 1) latencies: worth it when they are short against the bytes. */
    {.kind = MUSTER_OP_ALL_REDUCE, .algorithm = MUSTER_ALGORITHM_HALVING, .n_min = 256},
    {.kind = MUSTER_OP_ALL_REDUCE,
     .algorithm = MUSTER_ALGORITHM_HALVING,
     .n_min = 64,
     .bytes_max = 64u << 20},
    /* Two latencies, as long as n messages cost less than the others' latencies. */
    {.kind = MUSTER_OP_ALL_REDUCE,
     .span = MUSTER_SPAN_SPREAD,
     .algorithm = MUSTER_ALGORITHM_BLOCKS,
     .bytes_max = 256u << 10},
    {.kind = MUSTER_OP_ALL_REDUCE,
     .algorithm = MUSTER_ALGORITHM_HALVING,
     .n_min = 16,
     .bytes_max = 8u << 20},
    {.kind = MUSTER_OP_ALL_REDUCE,
     .algorithm = MUSTER_ALGORITHM_HALVING,
     .n_min = 4,
     .bytes_max = 1u << 20},
    {.kind = MUSTER_PLAN_KIND_ANY, .algorithm = MUSTER_ALGORITHM_RING},
};

const char *muster_algorithm_name(enum muster_algorithm algorithm)
{
    return (size_t)algorithm < NAME_COUNT ? names[algorithm] : "unknown";
}

bool muster_algorithm_parse(const char *name, enum muster_algorithm *ret_algorithm)
{
    for (size_t i = 0; i < NAME_COUNT; i++)
        if (strcmp(names[i], name) == 0) {
            *ret_algorithm = (enum muster_algorithm)i;
            return true;
        }
    return false;
}

static bool is_reduction(enum muster_op_kind kind)
{
    return kind == MUSTER_OP_ALL_REDUCE || kind == MUSTER_OP_REDUCE ||
           kind == MUSTER_OP_REDUCE_SCATTER || kind == MUSTER_OP_REDUCE_SCATTER_UNEVEN;
}

bool muster_algorithm_fits(enum muster_algorithm algorithm, enum muster_op_kind kind)
{
    switch (algorithm) {
    case MUSTER_ALGORITHM_DIRECT:
        return true;
    case MUSTER_ALGORITHM_RING:
        return kind != MUSTER_OP_BARRIER;
    case MUSTER_ALGORITHM_HALVING:
    case MUSTER_ALGORITHM_TWO_LEVEL:
        return kind == MUSTER_OP_ALL_REDUCE;
    case MUSTER_ALGORITHM_DOUBLE_TREE:
        return kind == MUSTER_OP_ALL_REDUCE || kind == MUSTER_OP_BROADCAST ||
               kind == MUSTER_OP_REDUCE;
    case MUSTER_ALGORITHM_BLOCKS:
        return is_reduction(kind) || kind == MUSTER_OP_ALL_GATHER ||
               kind == MUSTER_OP_ALL_GATHER_UNEVEN;
    case MUSTER_ALGORITHM_AUTO:
    case MUSTER_ALGORITHM_EXCHANGE:
    case MUSTER_ALGORITHM_FLAT:
    case MUSTER_ALGORITHM_HOST:
        break;
    }
    return false;
}

bool muster_algorithm_is_reproducible(enum muster_algorithm algorithm)
{
    return algorithm == MUSTER_ALGORITHM_DIRECT || algorithm == MUSTER_ALGORITHM_BLOCKS ||
           algorithm == MUSTER_ALGORITHM_FLAT || algorithm == MUSTER_ALGORITHM_HOST;
}

/* --- The choice --- */

/* A broadcast is direct by its size alone: who joins in later must come to the same chunks. */
static bool is_usable(const struct muster_plan_input *input, enum muster_algorithm algorithm)
{
    if (!muster_algorithm_fits(algorithm, input->kind))
        return false;
    if (algorithm == MUSTER_ALGORITHM_DIRECT &&
        (input->kind == MUSTER_OP_BROADCAST ||
         input->count * input->element_bytes > MUSTER_DIRECT_MAX_BYTES_MAX))
        return false;
    if (input->is_weighted && algorithm != MUSTER_ALGORITHM_DIRECT &&
        algorithm != MUSTER_ALGORITHM_RING && algorithm != MUSTER_ALGORITHM_BLOCKS)
        return false;
    return (!input->parameters.is_reproducible && !input->is_in_order) ||
           !is_reduction(input->kind) || muster_algorithm_is_reproducible(algorithm);
}

static enum muster_host_span span_of(const struct muster_plan_input *input)
{
    if (input->host_count == 0)
        return MUSTER_SPAN_ANY; /* not known: no row that asks for it */
    if (input->host_count == 1)
        return MUSTER_SPAN_ONE_HOST;
    return input->host_count == input->n ? MUSTER_SPAN_SPREAD : MUSTER_SPAN_HOSTS;
}

static bool is_match(const struct muster_plan_input *input, const struct muster_plan_row *row)
{
    enum muster_wire_kind wire = input->wire == MUSTER_WIRE_ANY ? MUSTER_WIRE_TCP : input->wire;

    return (row->kind == MUSTER_PLAN_KIND_ANY || row->kind == input->kind) &&
           (row->wire == MUSTER_WIRE_ANY || row->wire == wire) &&
           (row->span == MUSTER_SPAN_ANY || row->span == span_of(input)) &&
           input->n >= row->n_min &&
           (row->bytes_max == 0 || input->count * input->element_bytes <= row->bytes_max) &&
           is_usable(input, (enum muster_algorithm)row->algorithm);
}

/* AUTO: none. */
static enum muster_algorithm find_row(const struct muster_plan_input *input,
                                      const struct muster_plan_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is_match(input, &rows[i]))
            return (enum muster_algorithm)rows[i].algorithm;
    return MUSTER_ALGORITHM_AUTO;
}

bool muster_plan_leaves_shm(const struct muster_plan_input *input,
                            struct muster_plan_input *ret_input)
{
    struct muster_plan_input by_shm = *input;
    enum muster_algorithm algorithm = MUSTER_ALGORITHM_AUTO;

    by_shm.wire = MUSTER_WIRE_SHM;
    for (uint32_t i = 0; i < by_shm.parameters.row_count && algorithm == MUSTER_ALGORITHM_AUTO; i++)
        if (by_shm.parameters.rows[i].wire == MUSTER_WIRE_SHM)
            algorithm = find_row(&by_shm, &by_shm.parameters.rows[i], 1);
    if (algorithm == MUSTER_ALGORITHM_AUTO)
        return false;
    /* The rule has been found; with one byte as the limit nothing is small, and it is followed. */
    by_shm.parameters.row_count = 0;
    by_shm.parameters.forced = algorithm;
    by_shm.parameters.direct_max_bytes = 1;
    *ret_input = by_shm;
    return true;
}

/* Few members of one host on TCP: one exchange of everything is sooner over than the hops of a
 * ring, until its bytes weigh more (measured over loopback). */
static bool is_few_by_default(const struct muster_plan_input *input)
{
    return input->parameters.direct_max_bytes == 0 && input->kind == MUSTER_OP_ALL_REDUCE &&
           input->wire != MUSTER_WIRE_SHM && input->n < DIRECT_MEMBERS && input->host_count <= 1;
}

/* On one host halving sends what a ring sends, in fewer and longer messages; but who is folded in
 * sends more (measured over loopback with 4, 6 and 8 members). */
static bool is_halved(const struct muster_plan_input *input)
{
    return input->kind == MUSTER_OP_ALL_REDUCE && input->host_count == 1 &&
           input->wire != MUSTER_WIRE_SHM && input->n >= 4 && (input->n & (input->n - 1)) == 0 &&
           is_usable(input, MUSTER_ALGORITHM_HALVING);
}

/* Each member of an all_reduce gets as many inputs as there are members: 8 of direct_max_bytes, or
 * more of fewer. The others send theirs to all anyway, or are not asked how many there are. */
static bool is_small(const struct muster_plan_input *input)
{
    uint64_t bytes = input->count * input->element_bytes;
    uint64_t max = muster_plan_direct_max_bytes(&input->parameters);

    if (is_few_by_default(input))
        return bytes <= (input->n < 4 ? 256u << 10 : 64u << 10);
    if (input->kind == MUSTER_OP_ALL_REDUCE && input->n > DIRECT_MEMBERS)
        max = max * DIRECT_MEMBERS / input->n;
    return bytes <= max;
}

enum muster_algorithm muster_plan_choose(const struct muster_plan_input *input)
{
    const struct muster_plan_parameters *parameters = &input->parameters;
    bool is_direct = is_small(input);
    enum muster_algorithm algorithm;

    if (muster_plan_is_exchange(input->kind))
        return MUSTER_ALGORITHM_EXCHANGE;
    if (input->n == 1 || input->kind == MUSTER_OP_BARRIER || input->count == 0 ||
        (is_direct && (input->kind == MUSTER_OP_BROADCAST || parameters->row_count == 0)))
        return MUSTER_ALGORITHM_DIRECT;
    if (!is_direct && parameters->forced != MUSTER_ALGORITHM_AUTO &&
        is_usable(input, parameters->forced))
        return parameters->forced;
    algorithm = find_row(input, parameters->rows, parameters->row_count);
    if (algorithm != MUSTER_ALGORITHM_AUTO)
        return algorithm;
    if (is_direct)
        return MUSTER_ALGORITHM_DIRECT;
    if (is_halved(input))
        return MUSTER_ALGORITHM_HALVING;
    algorithm = find_row(input, built_in, sizeof(built_in) / sizeof(built_in[0]));
    /* Only a reduction that must be reproducible, or in the order of ranks, is refused by every
     * row. */
    return algorithm != MUSTER_ALGORITHM_AUTO ? algorithm : MUSTER_ALGORITHM_BLOCKS;
}
