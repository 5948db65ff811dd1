/* Names of optimizers and the like, as users write them. */
#include <string.h>

#include <muster/params.h>

static const char *const optimizers[MUSTER_PARAMS_OPTIMIZER_COUNT] = {
    [MUSTER_PARAMS_ADD] = "add",
    [MUSTER_PARAMS_ASSIGN] = "assign",
    [MUSTER_PARAMS_MAX] = "max",
    [MUSTER_PARAMS_SGD] = "sgd",
    [MUSTER_PARAMS_MOMENTUM] = "momentum",
    [MUSTER_PARAMS_NESTEROV] = "nesterov",
    [MUSTER_PARAMS_ADAGRAD] = "adagrad",
    [MUSTER_PARAMS_ROW_ADAGRAD] = "row_adagrad",
    [MUSTER_PARAMS_ADAM] = "adam",
    [MUSTER_PARAMS_FTRL] = "ftrl",
    [MUSTER_PARAMS_CLOCK_SUM] = "clock_sum",
};

const char *muster_params_optimizer_name(enum muster_params_optimizer optimizer)
{
    return (uint32_t)optimizer < MUSTER_PARAMS_OPTIMIZER_COUNT ? optimizers[optimizer] : "unknown";
}

enum muster_rc muster_params_optimizer_parse(const char *name,
                                             enum muster_params_optimizer *ret_optimizer)
{
    for (uint32_t i = 0; i < MUSTER_PARAMS_OPTIMIZER_COUNT; i++) {
        if (strcmp(optimizers[i], name) == 0) {
            *ret_optimizer = (enum muster_params_optimizer)i;
            return MUSTER_OK;
        }
    }
    return MUSTER_NOT_FOUND;
}

const char *muster_params_evict_name(enum muster_params_evict evict)
{
    return evict == MUSTER_PARAMS_EVICT_LRU   ? "lru"
           : evict == MUSTER_PARAMS_EVICT_LFU ? "lfu"
                                              : "unknown";
}
