/* Readers that were there when a version was made fetch it along its trees; the others from readers that have
 * it. */
#include "params/publication/roster.h"

#include <string.h>

/* Sources of a reader that came late; the publisher is behind them. */
#define LATE_SOURCES 3u

void muster_publication_roster_init(struct muster_publication_roster *roster,
                                    struct muster_mem *mem)
{
    memset(roster, 0, sizeof(*roster));
    roster->mem = mem;
}

void muster_publication_roster_fini(struct muster_publication_roster *roster)
{
    muster_publication_tree_fini(&roster->tree);
    memset(&roster->tree, 0, sizeof(roster->tree));
    muster_mem_free(roster->mem, roster->readers);
    muster_mem_free(roster->mem, roster->order);
    roster->readers = NULL;
    roster->order = NULL;
    roster->count = 0;
}

void muster_publication_roster_build(struct muster_publication_roster *roster,
                                     const struct muster_list *clients, uint64_t version)
{
    const char **host_keys;
    size_t room = 0;

    muster_publication_roster_fini(roster);
    roster->version = version;
    MUSTER_LIST_EACH (clients, client, struct muster_publication_client, node)
        room += client->is_joined && client->join.is_following;
    host_keys = muster_mem_alloc_zero(roster->mem, room + 1, sizeof(host_keys[0]));
    roster->readers = muster_mem_alloc_zero(roster->mem, room + 1, sizeof(roster->readers[0]));
    roster->order = muster_mem_alloc_zero(roster->mem, room + 1, sizeof(roster->order[0]));
    if (host_keys != NULL && roster->readers != NULL && roster->order != NULL) {
        MUSTER_LIST_EACH (clients, client, struct muster_publication_client, node) {
            if (!client->is_joined || !client->join.is_following)
                continue;
            host_keys[roster->count] = client->join.host_key;
            client->place = roster->count;
            roster->readers[roster->count++] = client;
        }
        if (muster_publication_tree_init(roster->mem, version, host_keys, roster->count,
                                         &roster->tree) == MUSTER_OK)
            muster_publication_tree_order(&roster->tree, roster->order);
        else
            roster->count = 0;
    }
    muster_mem_free(roster->mem, host_keys);
}

struct muster_publication_client *muster_publication_roster_reader(
    const struct muster_publication_roster *roster, uint32_t index)
{
    return roster->readers[roster->order[index]];
}

static uint32_t roster_find(const struct muster_publication_roster *roster,
                            const struct muster_publication_client *client)
{
    bool is_in_tree = client->place < roster->count && roster->readers[client->place] == client;

    return is_in_tree ? client->place : MUSTER_PUBLICATION_ROOT;
}

void muster_publication_roster_forget(struct muster_publication_roster *roster,
                                      const struct muster_publication_client *client)
{
    uint32_t place = roster_find(roster, client);

    if (place != MUSTER_PUBLICATION_ROOT)
        roster->readers[place] = NULL;
}

/* The addresses of one tree. */
struct source_list {
    char *texts;
    size_t bytes;
    uint32_t count;
};

static void source_add(struct source_list *list, const char *address)
{
    size_t bytes = strlen(address) + 1;

    memcpy(list->texts + list->bytes, address, bytes);
    list->bytes += bytes;
    list->count++;
}

/* Walk up the tree, and skip readers that are gone or do not listen. */
static void tree_sources(const struct muster_publication_roster *roster, uint32_t which,
                         uint32_t place, struct source_list *list)
{
    for (uint32_t dead = 0; list->count < MUSTER_PUBLICATION_SOURCES_MAX - 1; dead++) {
        uint32_t source = muster_publication_tree_source(&roster->tree, which, place, dead);
        const struct muster_publication_client *reader;

        if (source == MUSTER_PUBLICATION_ROOT)
            break;
        reader = roster->readers[source];
        if (reader != NULL && reader->join.address[0] != '\0')
            source_add(list, reader->join.address);
    }
}

static bool can_serve(const struct muster_publication_client *reader, uint64_t version)
{
    return reader->is_joined && reader->join.is_following && reader->has_version == version &&
           reader->join.address[0] != '\0';
}

static bool share_host(const struct muster_publication_client *a,
                       const struct muster_publication_client *b)
{
    return a->join.host_key[0] != '\0' && strcmp(a->join.host_key, b->join.host_key) == 0;
}

/* One of the reader's own host comes first: its memory can be mapped. The others follow in turn. */
static void late_sources(struct muster_publication_roster *roster,
                         const struct muster_list *clients,
                         const struct muster_publication_client *client, uint64_t version,
                         struct source_list *list)
{
    uint32_t able = 0, skip, seen = 0;

    MUSTER_LIST_EACH (clients, reader, struct muster_publication_client, node) {
        if (reader == client || !can_serve(reader, version))
            continue;
        if (!share_host(reader, client))
            able++;
        else if (list->count == 0)
            source_add(list, reader->join.address);
    }
    if (able == 0)
        return;
    skip = roster->turn++ % able;
    for (uint32_t round = 0; round < 2; round++) {
        MUSTER_LIST_EACH (clients, reader, struct muster_publication_client, node) {
            if (reader == client || !can_serve(reader, version) || share_host(reader, client) ||
                list->count == LATE_SOURCES)
                continue;
            if (seen >= skip && seen < skip + able)
                source_add(list, reader->join.address);
            seen++;
        }
    }
}

size_t muster_publication_roster_sources(
    struct muster_publication_roster *roster, const struct muster_list *clients,
    const struct muster_publication_client *client, uint64_t version, const char *own,
    char ret_sources[MUSTER_PUBLICATION_TREES * MUSTER_PUBLICATION_SOURCES_BYTES_MAX],
    uint32_t ret_counts[MUSTER_PUBLICATION_TREES])
{
    uint32_t place =
        version == roster->version ? roster_find(roster, client) : MUSTER_PUBLICATION_ROOT;
    size_t bytes = 0;

    for (uint32_t which = 0; which < MUSTER_PUBLICATION_TREES; which++) {
        struct source_list list = {.texts = ret_sources + bytes};

        if (place != MUSTER_PUBLICATION_ROOT)
            tree_sources(roster, which, place, &list);
        if (place == MUSTER_PUBLICATION_ROOT || (list.count == 0 && own == NULL))
            late_sources(roster, clients, client, version, &list);
        if (own != NULL)
            source_add(&list, own);
        ret_counts[which] = list.count;
        bytes += list.bytes;
    }
    return bytes;
}
