/* Where the ranks of a communicator meet: a file of shared memory with a box per ordered pair. */
#include "fake_nccl.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RANKS_MAX 32
#define BOX_BYTES 16384

struct box {
    atomic_uint_fast64_t put, taken;
    size_t bytes;
    char data[BOX_BYTES];
};

struct fake_segment {
    atomic_int arrived[RANKS_MAX];
    atomic_int complete_count; /* ranks that have seen all */
    struct box boxes[];
};

static void name_file(const struct fake_comm *comm, char *path, size_t size)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (const char *at = comm->name; *at != '\0'; at++)
        hash = (hash ^ (unsigned char)*at) * UINT64_C(1099511628211);
    snprintf(path, size, "/dev/shm/fake_nccl_%016llx", (unsigned long long)hash);
}

bool fake_segment_open(struct fake_comm *comm)
{
    size_t boxes = (size_t)comm->count * (size_t)comm->count;
    void *memory;
    char path[64];
    int file;

    comm->segment_bytes = sizeof(struct fake_segment) + boxes * sizeof(struct box);
    name_file(comm, path, sizeof(path));
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || comm->count > RANKS_MAX || ftruncate(file, (off_t)comm->segment_bytes) != 0)
        return false;
    memory = mmap(NULL, comm->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED)
        return false;
    comm->segment = memory;
    atomic_store(&comm->segment->arrived[comm->rank], 1);
    return true;
}

/* The last one that knows takes the name away. */
bool fake_segment_is_complete(struct fake_comm *comm)
{
    char path[64];

    if (comm->segment == NULL)
        return false;
    for (int rank = 0; rank < comm->count; rank++)
        if (atomic_load(&comm->segment->arrived[rank]) == 0)
            return false;
    if (atomic_fetch_add(&comm->segment->complete_count, 1) == 0) {
        name_file(comm, path, sizeof(path));
        unlink(path);
    }
    return true;
}

void fake_segment_close(struct fake_comm *comm)
{
    char path[64];

    if (comm->segment == NULL)
        return;
    if (comm->call == CALL_INIT) {
        name_file(comm, path, sizeof(path));
        unlink(path);
    }
    munmap(comm->segment, comm->segment_bytes);
    comm->segment = NULL;
}

static struct box *box_of(struct fake_comm *comm, int from, int to)
{
    return &comm->segment->boxes[from * comm->count + to];
}

size_t fake_segment_put(struct fake_comm *comm, int peer, const char *bytes, size_t count)
{
    struct box *box = box_of(comm, comm->rank, peer);
    uint64_t put = atomic_load(&box->put);

    if (put != atomic_load(&box->taken))
        return 0;
    box->bytes = count < BOX_BYTES ? count : BOX_BYTES;
    memcpy(box->data, bytes, box->bytes);
    count = box->bytes;
    atomic_store(&box->put, put + 1);
    return count;
}

size_t fake_segment_take(struct fake_comm *comm, int peer, char *bytes, size_t count)
{
    struct box *box = box_of(comm, peer, comm->rank);
    uint64_t taken = atomic_load(&box->taken);

    if (atomic_load(&box->put) == taken)
        return 0;
    if (box->bytes < count)
        count = box->bytes;
    memcpy(bytes, box->data, count);
    atomic_store(&box->taken, taken + 1);
    return count;
}
