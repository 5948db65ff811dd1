/* Places are mapped by name, so that a launcher hands down nothing but a variable (proc(5)). */
#include "runtime/system/host_place.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES 4096u /* the least that is mapped; of larger pages the first part */
#define PATH_BYTES 64u

static bool is_launcher_memory(int fd)
{
    static const char expected[] = "/memfd:" MUSTER_HOST_PLACES_NAME " (deleted)";
    char path[PATH_BYTES], found[sizeof(expected)];
    ssize_t length;

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    length = readlink(path, found, sizeof(found));
    return length == (ssize_t)sizeof(expected) - 1 &&
           memcmp(found, expected, sizeof(expected) - 1) == 0;
}

/* Not more than there is: a write beyond it would kill the process. */
static struct muster_host_place *place_map(int fd, unsigned long long offset)
{
    size_t within = (size_t)(offset % PAGE_BYTES);
    struct stat status;
    uint8_t *page;

    if (within % sizeof(struct muster_host_place) != 0 || fstat(fd, &status) != 0 ||
        !is_launcher_memory(fd) ||
        offset + PAGE_BYTES - within > (unsigned long long)status.st_size)
        return NULL;
    page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(offset - within));
    return page != MAP_FAILED ? (struct muster_host_place *)(page + within) : NULL;
}

struct muster_host_place *muster_host_place_open(const char *name)
{
    const char *colon = name != NULL ? strrchr(name, ':') : NULL;
    struct muster_host_place *place;
    char path[PATH_BYTES], *end = NULL;
    unsigned long long offset;
    int fd;

    if (colon == NULL || (size_t)(colon - name) >= sizeof(path))
        return NULL;
    (void)snprintf(path, sizeof(path), "%.*s", (int)(colon - name), name);
    offset = strtoull(colon + 1, &end, 10);
    if (end == colon + 1 || *end != '\0' || offset > UINT32_MAX)
        return NULL;
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    place = place_map(fd, offset);
    close(fd);
    return place;
}

void muster_host_place_close(struct muster_host_place *place)
{
    if (place != NULL)
        munmap((void *)((uintptr_t)place / PAGE_BYTES * PAGE_BYTES), PAGE_BYTES);
}
