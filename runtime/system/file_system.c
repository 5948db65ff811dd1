/* Large files. A new one is written beside its path, synced and renamed. */
#include "runtime/system/file_system.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* A large file goes to the disk in pieces. Several megabytes that are written back at once hold up all threads of
 * a virtual machine for up to 30 ms, and take three times as long (5 MiB and fsync; measured). */
#define PIECE_BYTES ((size_t)512 << 10)

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
static int piece_sync(struct muster_file_writer *writer)
{
    int result = sync_file_range(
        writer->fd, (off_t)(writer->at - writer->unsynced), (off_t)writer->unsynced,
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);

    writer->unsynced = 0;
    return result != 0 && (errno == EINVAL || errno == ESPIPE || errno == ENOSYS || errno == EPERM)
               ? 0
               : result;
}

/* errno says why. */
static enum muster_rc writer_fail(struct muster_file_writer *writer)
{
    writer->sys = errno;
    return muster_rc_from_errno(writer->sys);
}

/* The name holds the PID, so that two writers do not share the file. */
enum muster_rc muster_file_writer_open(struct muster_file_writer *writer, const char *path)
{
    writer->fd = -1;
    writer->path = path;
    writer->at = writer->unsynced = 0;
    writer->sys = 0;
    errno = ENAMETOOLONG;
    if (snprintf(writer->neighbour, sizeof(writer->neighbour), "%s.%ld.new", path, (long)getpid()) <
        (int)sizeof(writer->neighbour))
        writer->fd = open(writer->neighbour, O_WRONLY | O_CLOEXEC | O_CREAT | O_TRUNC, 0644);
    return writer->fd >= 0 ? MUSTER_OK : writer_fail(writer);
}

enum muster_rc muster_file_writer_add(struct muster_file_writer *writer, const void *bytes,
                                      size_t count)
{
    const char *from = bytes;

    while (count > 0) {
        size_t room = PIECE_BYTES - (size_t)writer->unsynced;
        size_t piece = count < room ? count : room;

        if (muster_file_write_all(writer->fd, from, piece) != 0)
            return writer_fail(writer);
        from += piece;
        count -= piece;
        writer->at += piece;
        writer->unsynced += piece;
        if (writer->unsynced == PIECE_BYTES && piece_sync(writer) != 0)
            return writer_fail(writer);
    }
    return MUSTER_OK;
}

enum muster_rc muster_file_writer_finish(struct muster_file_writer *writer)
{
    if (fsync(writer->fd) != 0)
        writer->sys = errno;
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
    close(writer->fd);
    unlink(writer->neighbour);
}

enum muster_rc muster_file_reader_open(struct muster_file_reader *reader, const char *path)
{
    struct stat found;
    int fd = open(path, O_RDONLY | O_CLOEXEC), sys;

    if (fd < 0)
        return muster_rc_from_errno(errno);
    if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode)) {
        sys = errno;
        close(fd);
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

void muster_file_reader_close(struct muster_file_reader *reader)
{
    close(reader->fd);
}
