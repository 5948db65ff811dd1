/* Large files. A new one is written beside its path, synced and renamed. */
#include "runtime/system/file_system.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <muster/hash.h>

/* A large file goes to the disk in pieces, past the page cache where the system can (O_DIRECT). Pages that are written
 * back out of the cache hold up all threads of a virtual machine for up to 30 ms, also those of a real-time class, and
 * take two to four times as long (1 GiB; measured): their bytes lie in thousands of places, those of a huge page in
 * one. */
#define PIECE_BYTES MUSTER_FILE_PIECE_BYTES

/* Without O_DIRECT: several megabytes that are written back at once hold up others longer than small parts do. */
#define SYNC_BYTES ((size_t)512 << 10)

/* A short write or a signal is not an error: the rest is written. A regular file with bytes to
 * write never answers 0. */
int muster_file_write_all(int fd, const void *bytes, size_t count)
{
    const char *from = bytes;

    while (count > 0) {
        ssize_t put = write(fd, from, count);

        if (put < 0 && errno != EINTR)
            return -1;
        if (put > 0) {
            from += put;
            count -= (size_t)put;
        }
    }
    return 0;
}

/* A system that cannot write a part back does so with the whole. An error is told here alone: fsync forgets it. */
static int part_sync(struct muster_file_writer *writer, size_t count)
{
    int result = sync_file_range(writer->fd, (off_t)writer->at, (off_t)count,
                                 SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                     SYNC_FILE_RANGE_WAIT_AFTER);

    return result != 0 && (errno == EINVAL || errno == ESPIPE || errno == ENOSYS || errno == EPERM)
               ? 0
               : result;
}

static void direct_set(struct muster_file_writer *writer, bool is_direct)
{
    int flags = fcntl(writer->fd, F_GETFL);

    if (flags >= 0)
        flags = fcntl(writer->fd, F_SETFL, is_direct ? flags | O_DIRECT : flags & ~O_DIRECT);
    writer->is_direct = is_direct && flags >= 0;
}

/* Bytes that lie at a multiple of a page in memory and in the file. A file system that takes no such bytes, or not so
 * few of them, takes them through the page cache. */
static int direct_write(struct muster_file_writer *writer, const uint8_t *bytes, size_t count)
{
    while (count > 0) {
        ssize_t put = write(writer->fd, bytes, count);

        if (put < 0 && errno == EINVAL) {
            direct_set(writer, false);
            return muster_file_write_all(writer->fd, bytes, count);
        }
        if (put < 0 && errno != EINTR)
            return -1;
        if (put > 0) {
            bytes += put;
            count -= (size_t)put;
        }
    }
    return 0;
}

static int parts_write(struct muster_file_writer *writer, const uint8_t *bytes, size_t count)
{
    while (count > 0) {
        size_t part = count < SYNC_BYTES ? count : SYNC_BYTES;

        if (muster_file_write_all(writer->fd, bytes, part) != 0 ||
            (part == SYNC_BYTES && part_sync(writer, part) != 0))
            return -1;
        bytes += part;
        count -= part;
        writer->at += part;
    }
    return 0;
}

static int staging_write(struct muster_file_writer *writer)
{
    size_t count = writer->used;

    writer->used = 0;
    if (writer->at == 0 && count == PIECE_BYTES)
        direct_set(writer, true);
    else if (writer->is_direct && count < PIECE_BYTES)
        direct_set(writer, false);
    if (!writer->is_direct)
        return parts_write(writer, writer->staging, count);
    if (direct_write(writer, writer->staging, count) != 0)
        return -1;
    writer->at += count;
    return 0;
}

static int staging_grow(struct muster_file_writer *writer)
{
    if (muster_huge_memory_open(muster_mem_system(), MUSTER_HUGE_PAGE_BYTES, &writer->memory) !=
        MUSTER_OK) {
        errno = ENOMEM;
        return -1;
    }
    memcpy(writer->memory.bytes, writer->first, writer->used);
    writer->staging = writer->memory.bytes;
    writer->room = PIECE_BYTES;
    return 0;
}

/* The file may hold a key. */
static void staging_free(struct muster_file_writer *writer)
{
    explicit_bzero(writer->staging, writer->room);
    explicit_bzero(writer->first, sizeof(writer->first));
    muster_huge_memory_close(&writer->memory);
}

/* errno says why. */
static enum muster_rc writer_fail(struct muster_file_writer *writer)
{
    writer->sys = errno;
    return muster_rc_from_errno(writer->sys);
}

/* Containers have the same process numbers, and hosts may share a folder. */
static uint64_t host_digest(void)
{
    struct utsname host;
    struct stat numbers;
    uint32_t space = 0;

    if (stat("/proc/self/ns/pid", &numbers) == 0)
        space = (uint32_t)numbers.st_ino;
    return uname(&host) == 0 ? muster_hash64(host.nodename, strlen(host.nodename), space) : space;
}

bool muster_file_neighbour_format(const char *path, char ret_neighbour[PATH_MAX])
{
    return snprintf(ret_neighbour, PATH_MAX, "%s.%ld-%08x.new", path, (long)getpid(),
                    (unsigned)host_digest()) < PATH_MAX;
}

bool muster_file_is_replaceable(const char *path)
{
    struct stat is;

    return lstat(path, &is) != 0 || S_ISREG(is.st_mode);
}

enum muster_rc muster_file_writer_open(struct muster_file_writer *writer, const char *path)
{
    bool has_name = muster_file_neighbour_format(path, writer->neighbour);

    writer->fd = -1;
    writer->path = path;
    writer->at = 0;
    writer->used = 0;
    writer->staging = writer->first;
    writer->room = sizeof(writer->first);
    writer->memory = (struct muster_huge_memory){.bytes = NULL};
    writer->is_direct = false;
    writer->sys = 0;
    errno = ENAMETOOLONG;
    if (has_name)
        writer->fd = open(writer->neighbour, O_WRONLY | O_CLOEXEC | O_CREAT | O_TRUNC, 0644);
    return writer->fd >= 0 ? MUSTER_OK : writer_fail(writer);
}

enum muster_rc muster_file_writer_add(struct muster_file_writer *writer, const void *bytes,
                                      size_t count)
{
    const uint8_t *from = bytes;

    while (count > 0) {
        size_t part = writer->room - writer->used;

        part = count < part ? count : part;
        memcpy(writer->staging + writer->used, from, part);
        from += part;
        count -= part;
        writer->used += part;
        if (writer->used < writer->room)
            continue;
        if ((writer->staging == writer->first ? staging_grow(writer) : staging_write(writer)) != 0)
            return writer_fail(writer);
    }
    return MUSTER_OK;
}

enum muster_rc muster_file_writer_finish(struct muster_file_writer *writer)
{
    if (staging_write(writer) != 0 || fsync(writer->fd) != 0)
        writer->sys = errno;
    staging_free(writer);
    if (close(writer->fd) != 0 && writer->sys == 0)
        writer->sys = errno;
    if (writer->sys == 0 && rename(writer->neighbour, writer->path) != 0)
        writer->sys = errno;
    if (writer->sys != 0)
        unlink(writer->neighbour);
    return muster_rc_from_errno(writer->sys);
}

void muster_file_writer_abandon(struct muster_file_writer *writer)
{
    staging_free(writer);
    close(writer->fd);
    unlink(writer->neighbour);
}

enum muster_rc muster_file_reader_open(struct muster_file_reader *reader, const char *path)
{
    struct stat found;
    /* Without O_NONBLOCK a named pipe would wait for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), sys;

    if (fd < 0)
        return muster_rc_from_errno(errno);
    sys = fstat(fd, &found) != 0 ? errno : 0;
    if (sys != 0 || !S_ISREG(found.st_mode)) {
        close(fd);
        errno = sys;
        return sys != 0 ? muster_rc_from_errno(sys) : MUSTER_INVALID_ARGUMENT;
    }
    *reader = (struct muster_file_reader){.fd = fd, .bytes = (uint64_t)found.st_size};
    return MUSTER_OK;
}

enum muster_rc muster_file_reader_read(const struct muster_file_reader *reader, uint64_t at,
                                       void *ret_bytes, size_t count)
{
    char *to = ret_bytes;

    while (count > 0) {
        ssize_t got = pread(reader->fd, to, count, (off_t)at);

        if (got == 0)
            return MUSTER_OUT_OF_RANGE;
        if (got < 0 && errno != EINTR)
            return muster_rc_from_errno(errno);
        if (got > 0) {
            to += got;
            at += (uint64_t)got;
            count -= (size_t)got;
        }
    }
    return MUSTER_OK;
}

/* Without it nothing fails, it takes longer. */
void muster_file_reader_read_ahead(const struct muster_file_reader *reader)
{
    (void)posix_fadvise(reader->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
}

const uint8_t *muster_file_reader_map(const struct muster_file_reader *reader)
{
    void *map = MAP_FAILED;

    if (reader->bytes > 0 && reader->bytes <= SIZE_MAX)
        map = mmap(NULL, (size_t)reader->bytes, PROT_READ, MAP_SHARED, reader->fd, 0);
    return map != MAP_FAILED ? map : NULL;
}

void muster_file_map_close(const uint8_t *map, uint64_t bytes)
{
    if (map != NULL)
        (void)munmap((void *)(uintptr_t)map, (size_t)bytes);
}

void muster_file_reader_close(struct muster_file_reader *reader)
{
    close(reader->fd);
}
