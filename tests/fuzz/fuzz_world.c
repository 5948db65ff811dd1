/* Variables of launchers with any text in them: the first byte says which variable holds it. */
#include <stdlib.h>
#include <string.h>

#include "resolvers/platform/launcher/world_resolver.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const char *const names[] = {
    "RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "JAX_PROCESS_ID",
    "JAX_NUM_PROCESSES",
    "JAX_COORDINATOR_ADDRESS",
    "PMI_RANK",
    "PMI_SIZE",
    "PMIX_RANK",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_MCA_orte_hnp_uri",
};
static const char *name;
static char *text;

/* The others hold what lets the readers go on. */
static const char *get_variable(struct muster_vars *vars, const char *wanted)
{
    (void)vars;
    if (strcmp(wanted, name) == 0)
        return text;
    return strstr(wanted, "SIZE") != NULL || strstr(wanted, "NUM") != NULL ? "8" : "1";
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static muster_world_read_fn *const readers[] = {
        muster_jax_world_read, muster_openmpi_world_read, muster_pmi_world_read,
        muster_torchrun_world_read};
    static const struct muster_vars_ops ops = {.get = get_variable};
    struct muster_vars vars = {.ops = &ops};

    if (size == 0)
        return 0;
    name = names[bytes[0] % (sizeof(names) / sizeof(names[0]))];
    text = strndup((const char *)bytes + 1, size - 1);
    if (text == NULL)
        abort();
    for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++) {
        struct muster_world world = {.rank_source = NULL};
        struct muster_error error = {0};
        enum muster_rc rc = readers[i](&vars, &world, &error);

        if (rc != MUSTER_OK && error.text[0] == '\0')
            abort();
        if (rc == MUSTER_OK && world.size_source != NULL && world.rank_source != NULL &&
            world.rank >= world.size)
            abort();
        if (rc == MUSTER_OK && world.coordinator_source != NULL && world.coordinator[0] == '\0')
            abort();
    }
    free(text);
    return 0;
}
