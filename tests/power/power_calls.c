/* libc's calls that change files, watched: the kernel is asked as ever, but nothing is really
 * synced. */
#include "power_disk.h"
#include "power_disk_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DESCRIPTORS 4096
#define FOLDER      -2

/* Exported, so that libraries find these instead of libc's. */
#define WATCHED __attribute__((visibility("default")))

/* The file in the log of each descriptor, plus 3, so that 0 means none. */
static int watched[DESCRIPTORS];

static int file_of(int fd)
{
    return fd >= 0 && fd < DESCRIPTORS ? watched[fd] - 3 : -3;
}

/* Calls that are to fail: some of those on the recorded folder that make, change or sync something.
 * */
static struct {
    size_t after, count;
    int sys;
} failing;

void power_disk_fail(size_t after, size_t count, int sys)
{
    failing.after = after;
    failing.count = count;
    failing.sys = sys;
}

bool power_disk_has_failed(void)
{
    return failing.sys != 0 && failing.after == 0;
}

static bool is_refused(bool is_watched)
{
    if (!is_watched || failing.sys == 0)
        return false;
    if (failing.after > 0) {
        failing.after--;
        return false;
    }
    if (failing.count == 0)
        return false;
    failing.count--;
    errno = failing.sys;
    return true;
}

static void watch_file(int fd, int file)
{
    if (fd >= 0 && fd < DESCRIPTORS)
        watched[fd] = file + 3;
}

static int open_watched(const char *path, int flags, unsigned mode)
{
    const char *name = power_log_name(path);
    int file = name != NULL ? power_log_find(name) : -1;
    int fd = -1;

    if (is_refused(name != NULL && (flags & O_CREAT) != 0))
        return -1;
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fd < 0)
        return fd;
    watch_file(fd, -3);
    if (name == NULL) {
        if (power_log_is_folder(path))
            watch_file(fd, FOLDER);
        return fd;
    }
    if (file < 0)
        file = power_log_create(name);
    else if ((flags & O_TRUNC) != 0)
        power_log_truncate(file, 0);
    watch_file(fd, file);
    return fd;
}

static unsigned mode_of(int flags, va_list args)
{
    return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, unsigned) : 0;
}

int power_open(const char *path, int flags, ...) __asm__("open") WATCHED;
int power_open(const char *path, int flags, ...)
{
    unsigned mode = 0;
    va_list args;

    va_start(args, flags);
    mode = mode_of(flags, args);
    va_end(args);
    return open_watched(path, flags, mode);
}

int power_open64(const char *path, int flags, ...) __asm__("open64") WATCHED;
int power_open64(const char *path, int flags, ...)
{
    unsigned mode = 0;
    va_list args;

    va_start(args, flags);
    mode = mode_of(flags, args);
    va_end(args);
    return open_watched(path, flags, mode);
}

int power_mkostemp(char *path, int flags) __asm__("mkostemp") WATCHED;
int power_mkostemp(char *path, int flags)
{
    int (*real)(char *, int) = (int (*)(char *, int))(uintptr_t)dlsym(RTLD_NEXT, "mkostemp");
    const char *name = power_log_name(path);
    int fd = is_refused(name != NULL) ? -1 : real(path, flags);

    if (fd < 0)
        return fd;
    watch_file(fd, name != NULL ? power_log_create(name) : -3);
    return fd;
}

int power_close(int fd) __asm__("close") WATCHED;
int power_close(int fd)
{
    watch_file(fd, -3);
    return (int)syscall(SYS_close, fd);
}

ssize_t power_pwrite(int fd, const void *bytes, size_t size,
                     off_t offset) __asm__("pwrite") WATCHED;
ssize_t power_pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    ssize_t written = 0;

    if (is_refused(file_of(fd) >= 0))
        return -1;
    written = (ssize_t)syscall(SYS_pwrite64, fd, bytes, size, offset);
    if (written > 0 && file_of(fd) >= 0)
        power_log_write(file_of(fd), (uint64_t)offset, bytes, (size_t)written);
    return written;
}

ssize_t power_pwrite64(int fd, const void *bytes, size_t size,
                       off_t offset) __asm__("pwrite64") WATCHED;
ssize_t power_pwrite64(int fd, const void *bytes, size_t size, off_t offset)
{
    return power_pwrite(fd, bytes, size, offset);
}

ssize_t power_write(int fd, const void *bytes, size_t size) __asm__("write") WATCHED;
ssize_t power_write(int fd, const void *bytes, size_t size)
{
    off_t offset = file_of(fd) >= 0 ? lseek(fd, 0, SEEK_CUR) : 0;
    ssize_t written = 0;

    if (is_refused(file_of(fd) >= 0))
        return -1;
    written = (ssize_t)syscall(SYS_write, fd, bytes, size);
    if (written > 0 && file_of(fd) >= 0)
        power_log_write(file_of(fd), (uint64_t)offset, bytes, (size_t)written);
    return written;
}

int power_ftruncate(int fd, off_t size) __asm__("ftruncate") WATCHED;
int power_ftruncate(int fd, off_t size)
{
    int failure = 0;

    if (is_refused(file_of(fd) >= 0))
        return -1;
    failure = (int)syscall(SYS_ftruncate, fd, size);
    if (failure == 0 && file_of(fd) >= 0)
        power_log_truncate(file_of(fd), (uint64_t)size);
    return failure;
}

int power_ftruncate64(int fd, off_t size) __asm__("ftruncate64") WATCHED;
int power_ftruncate64(int fd, off_t size)
{
    return power_ftruncate(fd, size);
}

int power_fsync(int fd) __asm__("fsync") WATCHED;
int power_fsync(int fd)
{
    if (fcntl(fd, F_GETFD) < 0 || is_refused(file_of(fd) >= FOLDER))
        return -1;
    if (file_of(fd) == FOLDER)
        power_log_sync_folder();
    else if (file_of(fd) >= 0)
        power_log_sync(file_of(fd));
    return 0;
}

int power_fdatasync(int fd) __asm__("fdatasync") WATCHED;
int power_fdatasync(int fd)
{
    return power_fsync(fd);
}

int power_unlink(const char *path) __asm__("unlink") WATCHED;
int power_unlink(const char *path)
{
    const char *name = power_log_name(path);
    int failure = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);

    if (failure == 0 && name != NULL)
        power_log_unlink(name);
    return failure;
}

/* to names what from does, which keeps its name or not. */
static int file_name_again(long call, const char *from, const char *to, bool is_kept)
{
    const char *name = power_log_name(to);
    int failure;

    if (is_refused(name != NULL))
        return -1;
    failure = (int)syscall(call, AT_FDCWD, from, AT_FDCWD, to, 0); /* renameat reads no flags */
    if (failure == 0 && name != NULL)
        power_log_link(name, power_log_find(power_log_name(from)),
                       is_kept ? NULL : power_log_name(from));
    return failure;
}

int power_link(const char *from, const char *to) __asm__("link") WATCHED;
int power_link(const char *from, const char *to)
{
    return file_name_again(SYS_linkat, from, to, true);
}

int power_rename(const char *from, const char *to) __asm__("rename") WATCHED;
int power_rename(const char *from, const char *to)
{
    return file_name_again(SYS_renameat, from, to, false);
}

/* Calls on file systems. */

static uint64_t room_bytes = UINT64_MAX;

void power_disk_set_room(uint64_t bytes)
{
    room_bytes = bytes;
}

int power_statvfs(const char *path, struct statvfs *ret_status) __asm__("statvfs") WATCHED;
int power_statvfs(const char *path, struct statvfs *ret_status)
{
    int (*real)(const char *, struct statvfs *) =
        (int (*)(const char *, struct statvfs *))(uintptr_t)dlsym(RTLD_NEXT, "statvfs");
    int failure = real(path, ret_status);

    if (failure == 0 && room_bytes != UINT64_MAX) {
        ret_status->f_frsize = 512;
        ret_status->f_bavail = room_bytes / 512;
        ret_status->f_bfree = ret_status->f_bavail + 4096; /* for the superuser alone */
        ret_status->f_bsize = 4096;
    }
    return failure;
}
