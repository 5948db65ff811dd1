/* The definition of a task's server, as a value in one piece of memory. */
#include <muster/server_def.h>

#include <string.h>

/* Where the next part of the copy goes. The parts come in the order of their alignment. */
struct piece {
    struct muster_server_def *def;
    struct muster_device_filter *filters;
    const char **texts;
    char *bytes;
};

static size_t text_bytes(const char *text)
{
    return text != NULL ? strlen(text) + 1 : 1;
}

static size_t filter_text_count(const struct muster_server_def *def)
{
    size_t count = 0;

    for (size_t i = 0; i < def->device_filter_count; i++)
        count += def->device_filters[i].filter_count;
    return count;
}

static size_t bytes_of(const struct muster_server_def *def)
{
    size_t bytes = def->config.size + text_bytes(def->job) + text_bytes(def->protocol);

    for (size_t i = 0; i < def->device_filter_count; i++) {
        const struct muster_device_filter *filter = &def->device_filters[i];

        bytes += text_bytes(filter->job);
        for (size_t k = 0; k < filter->filter_count; k++)
            bytes += text_bytes(filter->filters[k]);
    }
    return bytes;
}

static enum muster_rc piece_new(struct muster_mem *mem, const struct muster_server_def *def,
                                struct piece *ret_piece)
{
    size_t filters = def->device_filter_count * sizeof(struct muster_device_filter);
    size_t texts = filter_text_count(def) * sizeof(char *);
    char *memory = muster_mem_alloc_zero(mem, 1, sizeof(*def) + filters + texts + bytes_of(def));

    if (memory == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    ret_piece->def = (void *)memory;
    ret_piece->filters = (void *)(memory + sizeof(*def));
    ret_piece->texts = (void *)(memory + sizeof(*def) + filters);
    ret_piece->bytes = memory + sizeof(*def) + filters + texts;
    return MUSTER_OK;
}

static const char *text_copy(struct piece *piece, const char *text)
{
    char *copy = piece->bytes;
    size_t bytes = text_bytes(text);

    if (text != NULL)
        memcpy(copy, text, bytes);
    piece->bytes += bytes;
    return copy;
}

static struct muster_bytes config_copy(struct piece *piece, struct muster_bytes config)
{
    struct muster_bytes copy = {.data = piece->bytes, .size = config.size};

    if (config.size > 0)
        memcpy(piece->bytes, config.data, config.size);
    piece->bytes += config.size;
    return copy;
}

static void filter_copy(struct piece *piece, const struct muster_device_filter *from,
                        struct muster_device_filter *to)
{
    to->job = text_copy(piece, from->job);
    to->task = from->task;
    to->filters = piece->texts;
    to->filter_count = from->filter_count;
    for (size_t i = 0; i < from->filter_count; i++)
        *piece->texts++ = text_copy(piece, from->filters[i]);
}

enum muster_rc muster_server_def_new(struct muster_mem *mem, const struct muster_server_def *def,
                                     struct muster_server_def **ret_def)
{
    struct piece piece;
    enum muster_rc rc = piece_new(mem, def, &piece);

    if (rc != MUSTER_OK)
        return rc;
    piece.def->mem = mem;
    piece.def->task = def->task;
    piece.def->port = def->port;
    piece.def->job = text_copy(&piece, def->job);
    piece.def->protocol = text_copy(&piece, def->protocol);
    piece.def->config = config_copy(&piece, def->config);
    piece.def->device_filters = piece.filters;
    piece.def->device_filter_count = def->device_filter_count;
    for (size_t i = 0; i < def->device_filter_count; i++)
        filter_copy(&piece, &def->device_filters[i], &piece.filters[i]);
    if (def->cluster != NULL)
        piece.def->cluster =
            muster_cluster_spec_ref((struct muster_cluster_spec *)(uintptr_t)def->cluster);
    *ret_def = piece.def;
    return MUSTER_OK;
}

void muster_server_def_free(struct muster_server_def *def)
{
    if (def == NULL)
        return;
    muster_cluster_spec_unref((struct muster_cluster_spec *)(uintptr_t)def->cluster);
    muster_mem_free(def->mem, def);
}
