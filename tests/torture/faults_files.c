/* Files and their names, mappings. */
#include "faults_wrap.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

static mode_t open_mode(int flags, va_list args)
{
    return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
}

WRAP(int, open, const char *path, int flags, ...)
{
    int failure =
        (flags & O_CREAT) != 0 ? DRAW(open, EMFILE, EACCES, ENOSPC) : DRAW(open, EMFILE, EACCES);
    va_list args;
    mode_t mode;

    va_start(args, flags);
    mode = open_mode(flags, args);
    va_end(args);
    return FAIL_OR(failure, NEXT(open)(path, flags, mode));
}
WRAP_64(open);

WRAP(int, openat, int folder, const char *path, int flags, ...)
{
    int failure = (flags & O_CREAT) != 0 ? DRAW(openat, EMFILE, EACCES, ENOSPC)
                                         : DRAW(openat, EMFILE, EACCES);
    va_list args;
    mode_t mode;

    va_start(args, flags);
    mode = open_mode(flags, args);
    va_end(args);
    return FAIL_OR(failure, NEXT(openat)(folder, path, flags, mode));
}
WRAP_64(openat);

/* It is closed all the same. */
WRAP(int, close, int fd)
{
    int failure = DRAW(close, TORTURE_OF_CLOSE);
    int result = NEXT(close)(fd);

    return FAIL_OR(failure, result);
}

WRAP(FILE *, fopen, const char *path, const char *mode)
{
    int failure = DRAW(fopen, EMFILE, EACCES, ENOMEM);

    return NULL_OR(failure, NEXT(fopen)(path, mode));
}
WRAP_64(fopen);

WRAP(FILE *, fdopen, int fd, const char *mode)
{
    int failure = DRAW(fdopen, ENOMEM);

    return NULL_OR(failure, NEXT(fdopen)(fd, mode));
}

WRAP(DIR *, opendir, const char *path)
{
    int failure = DRAW(opendir, EMFILE, ENOMEM);

    return NULL_OR(failure, NEXT(opendir)(path));
}

WRAP(DIR *, fdopendir, int fd)
{
    int failure = DRAW(fdopendir, ENOMEM);

    return NULL_OR(failure, NEXT(fdopendir)(fd));
}

WRAP(int, mkostemp, char *path, int flags)
{
    int failure = DRAW(mkostemp, EMFILE, EACCES, ENOSPC);

    return FAIL_OR(failure, NEXT(mkostemp)(path, flags));
}
WRAP_64(mkostemp);

WRAP(char *, mkdtemp, char *path)
{
    int failure = DRAW(mkdtemp, EACCES, ENOSPC);

    return NULL_OR(failure, NEXT(mkdtemp)(path));
}

WRAP(int, mkdir, const char *path, mode_t mode)
{
    int failure = DRAW(mkdir, EACCES, ENOSPC);

    return FAIL_OR(failure, NEXT(mkdir)(path, mode));
}

WRAP(int, rename, const char *from, const char *to)
{
    int failure = DRAW(rename, ENOSPC, EACCES);

    return FAIL_OR(failure, NEXT(rename)(from, to));
}

WRAP(int, link, const char *from, const char *to)
{
    int failure = DRAW(link, ENOSPC, EPERM);

    return FAIL_OR(failure, NEXT(link)(from, to));
}

WRAP(int, unlink, const char *path)
{
    int failure = DRAW(unlink, EIO, EACCES);

    return FAIL_OR(failure, NEXT(unlink)(path));
}

WRAP(int, access, const char *path, int mode)
{
    int failure = DRAW(access, EIO, ENOMEM);

    return FAIL_OR(failure, NEXT(access)(path, mode));
}

WRAP(int, stat, const char *path, struct stat *ret_status)
{
    int failure = DRAW(stat, EIO, ENOMEM);

    return FAIL_OR(failure, NEXT(stat)(path, ret_status));
}
WRAP_64(stat);

WRAP(int, lstat, const char *path, struct stat *ret_status)
{
    int failure = DRAW(lstat, EIO, ENOMEM);

    return FAIL_OR(failure, NEXT(lstat)(path, ret_status));
}
WRAP_64(lstat);

WRAP(int, fstat, int fd, struct stat *ret_status)
{
    int failure = DRAW(fstat, EIO, ENOMEM);

    return FAIL_OR(failure, NEXT(fstat)(fd, ret_status));
}
WRAP_64(fstat);

WRAP(int, fstatat, int folder, const char *path, struct stat *ret_status, int flags)
{
    int failure = DRAW(fstatat, EIO, ENOMEM);

    return FAIL_OR(failure, NEXT(fstatat)(folder, path, ret_status, flags));
}
WRAP_64(fstatat);

WRAP(int, statvfs, const char *path, struct statvfs *ret_status)
{
    int failure = DRAW(statvfs, EIO, ENOMEM);

    return FAIL_OR(failure, NEXT(statvfs)(path, ret_status));
}
WRAP_64(statvfs);

WRAP(ssize_t, readlink, const char *path, char *text, size_t room)
{
    int failure = DRAW(readlink, EIO, EACCES);

    return FAIL_OR(failure, NEXT(readlink)(path, text, room));
}

WRAP(int, fchmod, int fd, mode_t mode)
{
    int failure = DRAW(fchmod, EIO, EPERM);

    return FAIL_OR(failure, NEXT(fchmod)(fd, mode));
}

WRAP(int, fsync, int fd)
{
    int failure = DRAW(fsync, TORTURE_OF_FSYNC);

    return FAIL_OR(failure, NEXT(fsync)(fd));
}

WRAP(int, fdatasync, int fd)
{
    int failure = DRAW(fdatasync, TORTURE_OF_FSYNC);

    return FAIL_OR(failure, NEXT(fdatasync)(fd));
}

WRAP(int, ftruncate, int fd, off_t bytes)
{
    int failure = DRAW(ftruncate, TORTURE_OF_FTRUNCATE);

    return FAIL_OR(failure, NEXT(ftruncate)(fd, bytes));
}
WRAP_64(ftruncate);

WRAP(int, fallocate, int fd, int mode, off_t at, off_t bytes)
{
    int failure = DRAW(fallocate, ENOSPC, EIO, EINTR);

    return FAIL_OR(failure, NEXT(fallocate)(fd, mode, at, bytes));
}
WRAP_64(fallocate);

/* Locks may be refused, not kept; descriptors may be too many. */
WRAP(int, fcntl, int fd, int command, ...)
{
    int failure = 0;
    va_list args;
    long value;

    va_start(args, command);
    value = va_arg(args, long);
    va_end(args);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
        failure = DRAW(fcntl, EMFILE);
    else if (command == F_SETLK && ((const struct flock *)value)->l_type != F_UNLCK)
        failure = DRAW(fcntl, ENOLCK, EAGAIN);
    return FAIL_OR(failure, NEXT(fcntl)(fd, command, value));
}
WRAP_64(fcntl);

WRAP(int, flock, int fd, int operation)
{
    int failure = 0;

    if ((operation & LOCK_UN) == 0)
        failure = (operation & LOCK_NB) != 0 ? DRAW(flock, ENOLCK) : DRAW(flock, ENOLCK, EINTR);
    return FAIL_OR(failure, NEXT(flock)(fd, operation));
}

WRAP(void *, mmap, void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    int failure = DRAW(mmap, TORTURE_OF_MMAP);

    if (failure != 0) {
        errno = failure;
        return MAP_FAILED;
    }
    return NEXT(mmap)(at, bytes, protection, flags, fd, offset);
}
WRAP_64(mmap);

WRAP(int, memfd_create, const char *name, unsigned flags)
{
    int failure = DRAW(memfd_create, EMFILE, ENOMEM);

    return FAIL_OR(failure, NEXT(memfd_create)(name, flags));
}

WRAP(int, madvise, void *at, size_t bytes, int advice)
{
    int failure = DRAW(madvise, ENOMEM, EAGAIN);

    return FAIL_OR(failure, NEXT(madvise)(at, bytes, advice));
}
