/* Parameter exchange: tables of rows that sharded servers hold and many clients push to and pull
 * from. docs/params.md says what it promises. */
#ifndef MUSTER_PARAMS_H
#define MUSTER_PARAMS_H

#include <muster/base.h>
#include <muster/collective.h>
#include <muster/env.h>
#include <muster/status.h>

MUSTER_BEGIN

#define MUSTER_PARAMS_NAME_BYTES    64 /* of a table or a source, with its NUL */
#define MUSTER_PARAMS_ROW_BYTES_MAX 65536u

/** What becomes of a row's values w (f32) when g is pushed. The numbers are stored and travel: new ones
 * come at the end. */
enum muster_params_optimizer {
    MUSTER_PARAMS_ADD,         /* w += g */
    MUSTER_PARAMS_ASSIGN,      /* w = g */
    MUSTER_PARAMS_MAX,         /* w = max(w, g); NaN when either is NaN */
    MUSTER_PARAMS_SGD,         /* w -= rate g */
    MUSTER_PARAMS_MOMENTUM,    /* m = beta1 m + g; w -= rate m */
    MUSTER_PARAMS_NESTEROV,    /* m = beta1 m + g; w -= rate (g + beta1 m) */
    MUSTER_PARAMS_ADAGRAD,     /* s += g g; w -= rate g / (sqrt(s) + epsilon) */
    MUSTER_PARAMS_ROW_ADAGRAD, /* s += mean of g g, one s for the row; w as ADAGRAD */
    MUSTER_PARAMS_ADAM,        /* Kingma & Ba 2015, algorithm 1; steps are counted per row */
    MUSTER_PARAMS_FTRL,        /* McMahan et al. 2013, algorithm 1, per coordinate */
};
#define MUSTER_PARAMS_OPTIMIZER_COUNT (MUSTER_PARAMS_FTRL + 1)

/** The values of a row that nothing has been pushed to: a function of (init_seed, key, position), the
 * same on every machine. The numbers are stored and travel. */
enum muster_params_init {
    MUSTER_PARAMS_INIT_ZERO,
    MUSTER_PARAMS_INIT_CONSTANT, /* init_scale */
    MUSTER_PARAMS_INIT_UNIFORM,  /* in [-init_scale, init_scale) */
    MUSTER_PARAMS_INIT_NORMAL,   /* mean 0, standard deviation init_scale */
};
#define MUSTER_PARAMS_INIT_COUNT (MUSTER_PARAMS_INIT_NORMAL + 1)

/**
 * What a table is. Immutable, and equal on all clients: another schema under the same name is
 * refused with INVALID_ARGUMENT.
 */
struct muster_params_schema {
    const char *name;            /* 1 to 63 bytes; borrowed during the call */
    uint32_t row_elements;       /* f32 values per row, 1 to 16,384; state of the optimizer is added */
    enum muster_dtype wire_dtype; /* F32, F16 or BF16: values in pushes and pulls */
    enum muster_params_optimizer optimizer;
    /* Hyper-parameters that the optimizer has; 0: its default. Others must be 0. */
    float learning_rate; /* default 0.01; ADAM 0.001; FTRL: alpha, 0.05 */
    float beta1;         /* MOMENTUM, NESTEROV, ADAM: default 0.9; FTRL: beta, 1 */
    float beta2;         /* ADAM: default 0.999 */
    float epsilon;       /* ADAGRAD, ROW_ADAGRAD: default 1e-10; ADAM: 1e-8 */
    float l1, l2;        /* FTRL: default 0 */
    enum muster_params_init init;
    float init_scale;
    uint64_t init_seed;
};

/** "row_adagrad". Static text, also for no optimizer. */
MUSTER_API const char *muster_params_optimizer_name(enum muster_params_optimizer optimizer);
/** Errors: NOT_FOUND. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc
muster_params_optimizer_parse(const char *name, enum muster_params_optimizer *ret_optimizer);
/** Whether the parts go together. Errors: INVALID_ARGUMENT, naming the part. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc
muster_params_schema_check(const struct muster_params_schema *schema,
                           struct muster_error *ret_error);

MUSTER_END

#endif
