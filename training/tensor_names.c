/* A hash table with open addressing. It does not shrink: nothing is unregistered. */
#include "training/tensor_names.h"

#include <string.h>

#include <muster/hash.h>

#define CAPACITY_MIN 64u

/* The place of the name, or the free one where it would be. */
static uint32_t *place_of(const struct muster_tensor_names *names,
                          const struct muster_node_tensor *tensors, const char *name)
{
    size_t at = (size_t)muster_hash64(name, strlen(name), 0) & (names->capacity - 1);

    while (names->places[at] != 0 && strcmp(tensors[names->places[at] - 1].name, name) != 0)
        at = (at + 1) & (names->capacity - 1);
    return &names->places[at];
}

bool muster_tensor_names_have(const struct muster_tensor_names *names,
                              const struct muster_node_tensor *tensors, const char *name)
{
    return names->capacity > 0 && *place_of(names, tensors, name) != 0;
}

static enum muster_rc names_grow(struct muster_tensor_names *names, struct muster_mem *mem,
                                 const struct muster_node_tensor *tensors, size_t count)
{
    struct muster_tensor_names larger = {.capacity = names->capacity > 0 ? 2 * names->capacity
                                                                         : CAPACITY_MIN};

    larger.places = muster_mem_alloc_zero(mem, larger.capacity, sizeof(larger.places[0]));
    if (larger.places == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < count; i++)
        *place_of(&larger, tensors, tensors[i].name) = (uint32_t)i + 1;
    muster_mem_free(mem, names->places);
    *names = larger;
    return MUSTER_OK;
}

enum muster_rc muster_tensor_names_add(struct muster_tensor_names *names, struct muster_mem *mem,
                                       const struct muster_node_tensor *tensors, size_t count)
{
    uint32_t *place;

    if (2 * (count + 1) > names->capacity && names_grow(names, mem, tensors, count) != MUSTER_OK)
        return MUSTER_RESOURCE_EXHAUSTED;
    place = place_of(names, tensors, tensors[count].name);
    MUSTER_ASSERT(*place == 0 && count < UINT32_MAX);
    *place = (uint32_t)count + 1;
    return MUSTER_OK;
}

void muster_tensor_names_fini(struct muster_tensor_names *names, struct muster_mem *mem)
{
    muster_mem_free(mem, names->places);
    *names = (struct muster_tensor_names){.places = NULL};
}
