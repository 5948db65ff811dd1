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
    roster->readers = NULL;
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
    if (host_keys != NULL && roster->readers != NULL) {
        MUSTER_LIST_EACH (clients, client, struct muster_publication_client, node) {
            if (!client->is_joined || !client->join.is_following)
                continue;
            host_keys[roster->count] = client->join.host_key;
            roster->readers[roster->count++] = client;
        }
        if (muster_publication_tree_init(roster->mem, version, host_keys, roster->count,
                                         &roster->tree) != MUSTER_OK)
            roster->count = 0;
    }
    muster_mem_free(roster->mem, host_keys);
}

static uint32_t roster_find(const struct muster_publication_roster *roster,
                            const struct muster_publication_client *client)
{
    for (uint32_t i = 0; i < roster->count; i++) {
        if (roster->readers[i] == client)
            return i;
    }
    return MUSTER_PUBLICATION_ROOT;
}

void muster_publication_roster_forget(struct muster_publication_roster *roster,
                                      const struct muster_publication_client *client)
{
    uint32_t place = roster_find(roster, client);

    if (place != MUSTER_PUBLICATION_ROOT)
        roster->readers[place] = NULL;
}

static void source_add(char *sources, uint32_t *count, const char *address)
{
    char *to = sources + (size_t)*count * MUSTER_ADDRESS_TEXT_BYTES;

    memset(to, 0, MUSTER_ADDRESS_TEXT_BYTES);
    memcpy(to, address, strlen(address));
    ++*count;
}

/* Walk up the tree, and skip readers that are gone or do not listen. */
static uint32_t tree_sources(const struct muster_publication_roster *roster, uint32_t which,
                             uint32_t place, char *sources)
{
    uint32_t count = 0;

    for (uint32_t dead = 0; count < MUSTER_PUBLICATION_SOURCES_MAX - 1; dead++) {
        uint32_t source = muster_publication_tree_source(&roster->tree, which, place, dead);
        const struct muster_publication_client *reader;

        if (source == MUSTER_PUBLICATION_ROOT)
            break;
        reader = roster->readers[source];
        if (reader != NULL && reader->join.address[0] != '\0')
            source_add(sources, &count, reader->join.address);
    }
    return count;
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
static uint32_t late_sources(struct muster_publication_roster *roster,
                             const struct muster_list *clients,
                             const struct muster_publication_client *client, uint64_t version,
                             char *sources)
{
    uint32_t able = 0, count = 0, skip, seen = 0;

    MUSTER_LIST_EACH (clients, reader, struct muster_publication_client, node) {
        if (reader == client || !can_serve(reader, version))
            continue;
        if (!share_host(reader, client))
            able++;
        else if (count == 0)
            source_add(sources, &count, reader->join.address);
    }
    if (able == 0)
        return count;
    skip = roster->turn++ % able;
    for (uint32_t round = 0; round < 2; round++) {
        MUSTER_LIST_EACH (clients, reader, struct muster_publication_client, node) {
            if (reader == client || !can_serve(reader, version) || share_host(reader, client) ||
                count == LATE_SOURCES)
                continue;
            if (seen >= skip && seen < skip + able)
                source_add(sources, &count, reader->join.address);
            seen++;
        }
    }
    return count;
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
        char *sources = ret_sources + bytes;
        uint32_t count = 0;

        if (place != MUSTER_PUBLICATION_ROOT)
            count = tree_sources(roster, which, place, sources);
        if (place == MUSTER_PUBLICATION_ROOT || (count == 0 && own == NULL))
            count = late_sources(roster, clients, client, version, sources);
        if (own != NULL)
            source_add(sources, &count, own);
        ret_counts[which] = count;
        bytes += (size_t)count * MUSTER_ADDRESS_TEXT_BYTES;
    }
    return bytes;
}
