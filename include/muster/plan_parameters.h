/* What all members of a view must share so that they come to the same plans: sizes, and which
 * algorithm runs what. */
#ifndef MUSTER_PLAN_PARAMETERS_H
#define MUSTER_PLAN_PARAMETERS_H

#include <muster/base.h>
#include <muster/mem.h>
#include <muster/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

MUSTER_BEGIN

struct muster_files;

/** How an operation moves its data. Numbers are part of the view. */
enum muster_algorithm {
    MUSTER_ALGORITHM_AUTO = 0, /* chosen by the table */
    /* Every member sends its whole input to all; all reduce in rank order. */
    MUSTER_ALGORITHM_DIRECT = 1,
    /* Each chunk goes round the ring: partial sums from the member after its owner to its owner,
     * then the final value from the owner onwards. The value is ((x[b+1] + x[b+2]) + …) + x[b], b =
     * owner, computed once. */
    MUSTER_ALGORITHM_RING = 2,
    /* Recursive halving, then doubling: log2(n) exchanges each way. */
    MUSTER_ALGORITHM_HALVING = 3,
    /* Two binary trees, each for half of the chunks; who passes on in one is a leaf of the other. */
    MUSTER_ALGORITHM_DOUBLE_TREE = 4,
    /* Everybody sends each block to its owner, who reduces in rank order and sends the result to
     * all. */
    MUSTER_ALGORITHM_BLOCKS = 5,
    /* Blocks within each host, halving and doubling across hosts, blocks back within the host. */
    MUSTER_ALGORITHM_TWO_LEVEL = 6,
    /* Every member sends each other its part, in pieces: what is no reduction and has no chunks.
     * Never chosen by a table. */
    MUSTER_ALGORITHM_EXCHANGE = 7,
    /* Through shared memory, where all members have it. Every member reduces all inputs in rank
     * order. */
    MUSTER_ALGORITHM_FLAT = 8,
    /* Through shared memory: each chunk is computed by its owner, in rank order, and copied by all.
     */
    MUSTER_ALGORITHM_HOST = 9,
};

/** What carries the frames of an operation. */
enum muster_wire_kind {
    MUSTER_WIRE_ANY = 0,
    MUSTER_WIRE_TCP = 1,
    MUSTER_WIRE_SHM = 2, /* every participant maps the memory of all others */
};

enum muster_host_span {
    MUSTER_SPAN_ANY = 0,
    MUSTER_SPAN_ONE_HOST = 1,
    MUSTER_SPAN_HOSTS = 2, /* several, of which one at least has several participants */
    MUSTER_SPAN_SPREAD = 3 /* several, each with one participant */
};

#define MUSTER_PLAN_KIND_ANY UINT8_MAX

/** Which operations run by which algorithm. Zero but for kind: all. */
struct muster_plan_row {
    uint8_t kind; /* enum muster_op_kind, or MUSTER_PLAN_KIND_ANY */
    uint8_t wire; /* enum muster_wire_kind */
    uint8_t span; /* enum muster_host_span */
    uint8_t algorithm;
    uint32_t n_min;     /* participants, at least */
    uint64_t bytes_max; /* of the whole vector, at most; 0: any */
};

#define MUSTER_PLAN_ROWS_MAX 48u

/** Plan parameters that all members must share: a part of the view. Zeros are the defaults. */
struct muster_plan_parameters {
    uint32_t chunk_bytes; /* 0: 261,824, about 256 KiB */
    /* Up to this size: direct exchange. 0: 32 KiB; an all_reduce over TCP within a host 256 KiB among
     * 2 or 3 members, 64 KiB among 4 to 7. */
    uint32_t direct_max_bytes;
    /* Not AUTO: every operation that it can run and that is not as small runs so. */
    enum muster_algorithm forced;
    /* The same bits of a reduction whatever the algorithm, the chunks, the wire and the timing,
     * while the participants are the same: every sum is made in the order of the members (f16 and
     * bf16 in f32, rounded once). Leaves out the algorithms that do not. */
    bool is_reproducible;
    /* The first row that fits and can run it decides; none does: the built-in table. */
    uint32_t row_count;
    struct muster_plan_row rows[MUSTER_PLAN_ROWS_MAX];
};

/** "direct", "ring", …; static text. */
MUSTER_API const char *muster_algorithm_name(enum muster_algorithm algorithm);
/** False: no algorithm has that name. */
MUSTER_API bool muster_algorithm_parse(const char *name, enum muster_algorithm *ret_algorithm);

/** From the text of a tuning file (docs/collectives.md). Errors: INVALID_ARGUMENT, with the line
 * and what to write instead. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_plan_parameters_parse(
    const char *text, struct muster_plan_parameters *ret_parameters,
    struct muster_error *ret_error);
/** The same of a file (at most 64 KiB); the text of an error begins with its path. Also NOT_FOUND,
 * PERMISSION_DENIED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_plan_parameters_read(
    struct muster_files *files, struct muster_mem *mem, const char *path,
    struct muster_plan_parameters *ret_parameters, struct muster_error *ret_error);
/** The text that muster_plan_parameters_parse reads; cut to size. Returns the length of the whole. */
MUSTER_API size_t muster_plan_parameters_format(const struct muster_plan_parameters *parameters,
                                                char *ret_text, size_t size);

MUSTER_END

#endif
