/* Small files of the real file system, read and replaced whole. */
#include <muster/env.h>

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/system/file_system.h"

#define READ_STEP_BYTES 4096u /* files in /proc and /sys tell no size */

struct text {
    struct muster_mem *mem;
    char *bytes;
    size_t count;
    size_t capacity;
};

/* A file may hold a key: what is given back is wiped. */
static void text_free(struct text *text)
{
    if (text->bytes != NULL)
        explicit_bzero(text->bytes, text->count);
    muster_mem_free(text->mem, text->bytes);
}

/* Copied and wiped instead of realloc, which could leave part of a key behind in the old block. */
static bool text_grow(struct text *text)
{
    size_t capacity = text->capacity * 2 + READ_STEP_BYTES;
    char *bytes = muster_mem_alloc(text->mem, capacity);

    if (bytes == NULL)
        return false;
    if (text->count > 0)
        memcpy(bytes, text->bytes, text->count);
    text_free(text);
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

/* One more read; *ret_is_end tells the end of the file. */
static enum muster_rc read_some(int fd, struct text *text, size_t limit_bytes, bool *ret_is_end)
{
    ssize_t got;

    if (text->count + 1 >= text->capacity && !text_grow(text))
        return MUSTER_RESOURCE_EXHAUSTED;
    got = read(fd, text->bytes + text->count, text->capacity - text->count - 1);
    if (got < 0)
        return errno == EINTR ? MUSTER_OK : muster_rc_from_errno(errno);
    text->count += (size_t)got;
    if (text->count > limit_bytes)
        return MUSTER_RESOURCE_EXHAUSTED;
    *ret_is_end = got == 0;
    return MUSTER_OK;
}

static enum muster_rc system_read(struct muster_files *files, struct muster_mem *mem,
                                  const char *path, size_t limit_bytes, char **ret_text,
                                  size_t *ret_bytes)
{
    struct text text = {.mem = mem};
    bool is_end = false;
    enum muster_rc rc = MUSTER_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC), sys;

    (void)files;
    if (fd < 0)
        return muster_rc_from_errno(errno);
    while (rc == MUSTER_OK && !is_end)
        rc = read_some(fd, &text, limit_bytes, &is_end);
    sys = errno;
    close(fd);
    if (rc != MUSTER_OK) {
        text_free(&text);
        errno = sys;
        return rc;
    }
    text.bytes[text.count] = '\0';
    *ret_text = text.bytes;
    *ret_bytes = text.count;
    return MUSTER_OK;
}

/* Into what is not a regular file. Returns the errno, or 0. */
static int fill_special(const char *path, const void *bytes, size_t count)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    int sys = 0;

    if (fd < 0)
        return errno;
    if (muster_file_write_all(fd, bytes, count) != 0)
        sys = errno;
    if (close(fd) != 0 && sys == 0)
        sys = errno;
    return sys;
}

/* A reader sees the old file or the new one, also after a power cut. */
static int replace_file(const char *path, const void *bytes, size_t count)
{
    struct muster_file_writer writer;
    enum muster_rc rc = muster_file_writer_open(&writer, path);

    if (rc != MUSTER_OK)
        return writer.sys;
    rc = muster_file_writer_add(&writer, bytes, count);
    if (rc == MUSTER_OK)
        rc = muster_file_writer_finish(&writer);
    else
        muster_file_writer_abandon(&writer);
    return writer.sys;
}

static bool system_is_special(struct muster_files *files, const char *path)
{
    struct stat status;

    (void)files;
    return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

/* /dev/null stays /dev/null; a folder is refused either way. */
static enum muster_rc system_write(struct muster_files *files, const char *path, const void *bytes,
                                   size_t count)
{
    int sys = system_is_special(files, path) ? fill_special(path, bytes, count)
                                             : replace_file(path, bytes, count);

    errno = sys;
    return muster_rc_from_errno(sys);
}

static size_t system_count(struct muster_files *files, const char *pattern)
{
    glob_t found = {0};
    size_t count = 0;

    (void)files;
    if (glob(pattern, 0, NULL, &found) == 0)
        count = found.gl_pathc;
    globfree(&found);
    return count;
}

struct muster_files *muster_files_system(void)
{
    static const struct muster_files_ops ops = {.read = system_read,
                                                .write = system_write,
                                                .is_special = system_is_special,
                                                .count = system_count};
    static struct muster_files files = {.ops = &ops};

    return &files;
}
