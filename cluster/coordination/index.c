/* An index of entries by name: sorted, found by bisection, listed in order. Inserting moves the pointers
 * after it, which is fast enough for the keys of a job (thousands), and listing a directory is a plain
 * walk. */
#include "cluster/coordination/index.h"

#include <string.h>

#include "cluster/store/mvcc.h"
#include "runtime/value/array.h"

void muster_coordination_index_init(struct muster_coordination_index *index, struct muster_mem *mem)
{
    memset(index, 0, sizeof(*index));
    index->mem = mem;
}

void muster_coordination_index_fini(struct muster_coordination_index *index)
{
    muster_mem_free(index->mem, index->names);
    muster_coordination_index_init(index, index->mem);
}

/* All that have a prefix stand together from here on, in the order of bytes. */
size_t muster_coordination_index_seek(const struct muster_coordination_index *index,
                                      struct muster_bytes text)
{
    size_t low = 0, high = index->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (muster_registry_bytes_compare(index->names[middle]->text, text) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct muster_coordination_name *muster_coordination_index_find(
    const struct muster_coordination_index *index, struct muster_bytes text)
{
    size_t at = muster_coordination_index_seek(index, text);

    return at < index->count && muster_registry_bytes_compare(index->names[at]->text, text) == 0
               ? index->names[at]
               : NULL;
}

bool muster_coordination_index_add(struct muster_coordination_index *index,
                                   struct muster_coordination_name *name)
{
    size_t at = muster_coordination_index_seek(index, name->text);
    struct muster_coordination_name **names = muster_array_reserve(
        index->mem, index->names, index->count, &index->capacity, sizeof(*names));

    if (names == NULL)
        return false;
    index->names = names;
    MUSTER_ASSERT(at == index->count || names[at] != name);
    memmove(index->names + at + 1, index->names + at, (index->count - at) * sizeof(*index->names));
    index->names[at] = name;
    index->count++;
    return true;
}

/* The entry itself is compared too: one that was never added may have the name of another. */
void muster_coordination_index_remove(struct muster_coordination_index *index,
                                      struct muster_coordination_name *name)
{
    size_t at = muster_coordination_index_seek(index, name->text);

    if (at == index->count || index->names[at] != name)
        return;
    index->count--;
    memmove(index->names + at, index->names + at + 1, (index->count - at) * sizeof(*index->names));
}

bool muster_bytes_has_prefix(struct muster_bytes text, struct muster_bytes prefix)
{
    return text.size >= prefix.size &&
           (prefix.size == 0 || memcmp(text.data, prefix.data, prefix.size) == 0);
}
