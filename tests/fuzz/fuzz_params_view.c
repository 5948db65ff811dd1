/* The memory of another process, read row by row: whatever stands in it, the reader stays within its bounds and ends.
 * An input is a list of places and what is written there; the memory is as it was before each input. */
#include <stdlib.h>
#include <string.h>

#include "params/store/apply.h"
#include "params/store/row.h"
#include "params/store/view.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define MEMORY_BYTES MUSTER_PARAMS_REGION_BYTES_MIN
#define ALIGNMENT    ((size_t)2 << 20)
#define KEYS         8u
#define ELEMENTS     3u
#define PATCH_BYTES  12u
#define PATCHES_MAX  16u

enum area { HEAD, TABLE, SLOTS, ROWS, AREA_COUNT };

struct patch {
    uint8_t *at;
    uint64_t before;
};

static struct muster_params_region region;
static struct muster_params_store_table *table;
static uint64_t descriptor; /* of the table, as a client knows it */

static void fail_unless(bool is_right)
{
    if (!is_right)
        abort();
}

static struct muster_params_row *row_of(uint64_t key)
{
    return muster_params_index_find(&region, table, muster_params_hash(table->seed, key), key);
}

static void memory_make(void)
{
    const struct muster_params_region_options options = {.shard_count = 1};
    const struct muster_params_schema schema = {.name = "rows",
                                                .row_elements = ELEMENTS,
                                                .wire_dtype = MUSTER_F32,
                                                .optimizer = MUSTER_PARAMS_ADD};
    uint8_t *memory = aligned_alloc(ALIGNMENT, MEMORY_BYTES);
    struct muster_error error;

    fail_unless(memory != NULL);
    memset(memory, 0, MEMORY_BYTES);
    fail_unless(muster_params_region_init(&region, memory, MEMORY_BYTES, &options, &error) ==
                MUSTER_OK);
    fail_unless(muster_params_table_open(&region, &schema, &table, &error) == MUSTER_OK);
    descriptor = table->descriptor;
    for (uint64_t key = 0; key < KEYS; key++) {
        struct muster_params_row *row;

        fail_unless(muster_params_row_make(&region, table, key,
                                           muster_params_hash(table->seed, key), &row) == MUSTER_OK);
        row->values[0] = (float)key;
    }
}

/* Places near those that a reader looks at: the bytes of a patch are area, key and offset. */
static uint8_t *place_of(uint8_t area, uint8_t key, uint16_t offset)
{
    const struct muster_params_index *index = &table->index[0];
    uint64_t slot, hash = muster_params_hash(table->seed, key % KEYS);

    switch ((enum area)(area % AREA_COUNT)) {
    case HEAD:
        return region.memory + offset % 128;
    case TABLE:
        return (uint8_t *)table + offset % (sizeof(*table) - sizeof(uint64_t));
    case SLOTS:
        slot = (hash + offset % 8) & ((UINT64_C(1) << 17) - 1);
        return (uint8_t *)muster_params_at(&region, index->offset) + slot * sizeof(uint64_t);
    case ROWS:
    case AREA_COUNT:
    default:
        return (uint8_t *)row_of(key % KEYS) + offset % 24;
    }
}

static void rows_read(bool is_whole)
{
    struct muster_params_view_table read;
    struct muster_params_view view;
    static const uint64_t keys[] = {0, 1, 2, 3, 4, 5, 6, 7, 100};
    float values[sizeof(keys) / sizeof(keys[0]) * ELEMENTS];
    enum muster_rc rc =
        muster_params_view_init(&view, region.memory, MEMORY_BYTES, &(struct muster_incarnation){0});

    if (rc == MUSTER_OK)
        rc = muster_params_view_table_init(&read, &view, 0, descriptor, ELEMENTS);
    if (rc == MUSTER_OK)
        rc = muster_params_view_read(&view, &read, keys, sizeof(keys) / sizeof(keys[0]), values);
    if (!is_whole)
        return;
    fail_unless(rc == MUSTER_OK);
    for (uint32_t i = 0; i < KEYS; i++)
        fail_unless(values[i * ELEMENTS] == (float)i);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct patch patches[PATCHES_MAX];
    uint32_t count = 0;

    if (table == NULL)
        memory_make();
    for (; count < PATCHES_MAX && (count + 1) * PATCH_BYTES <= size; count++) {
        const uint8_t *at = bytes + count * PATCH_BYTES;
        uint16_t offset;

        memcpy(&offset, at + 2, sizeof(offset));
        patches[count].at = place_of(at[0], at[1], offset);
    }
    for (uint32_t i = 0; i < count; i++) {
        memcpy(&patches[i].before, patches[i].at, sizeof(patches[i].before));
        memcpy(patches[i].at, bytes + i * PATCH_BYTES + 4, sizeof(patches[i].before));
    }
    rows_read(count == 0);
    for (uint32_t i = count; i-- > 0;)
        memcpy(patches[i].at, &patches[i].before, sizeof(patches[i].before));
    rows_read(true);
    return 0;
}
