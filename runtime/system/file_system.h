/* Large files of the real file system, piece by piece. All of these block, and may be called from any
 * thread: one at a time for each file. */
#ifndef MUSTER_RUNTIME_FILE_SYSTEM_H
#define MUSTER_RUNTIME_FILE_SYSTEM_H

#include <limits.h>

#include <muster/base.h>
#include <muster/status.h>

#include "runtime/system/huge_memory.h"

/** A file of more bytes is written in pieces, from memory that its writer takes from the C library. */
#define MUSTER_FILE_FIRST_BYTES 4096u
#define MUSTER_FILE_PIECE_BYTES ((size_t)1 << 20)

/** A file that replaces the one of its path when it is whole: whenever the power fails, the path has the old one or
 * the new one. Caller's memory. */
struct muster_file_writer {
    int sys; /* errno of the call that failed; 0: none has */
    /* --- Private --- */
    int fd;
    bool is_direct;    /* past the page cache */
    uint64_t at;       /* bytes that the file has */
    uint8_t *staging;  /* bytes that it does not have yet: in first, then in memory */
    size_t used, room; /* of staging */
    const char *path;
    char neighbour[PATH_MAX];
    struct muster_huge_memory memory;
    uint8_t first[MUSTER_FILE_FIRST_BYTES]; /* enough for a small file */
};

/** Nothing is there, or a regular file: the writer's rename would put a file in the place of a device, a pipe or a
 * link. */
bool muster_file_is_replaceable(const char *path);
/** Borrows path until the end. After an error nothing is to be undone. */
MUSTER_MUST_CHECK enum muster_rc muster_file_writer_open(struct muster_file_writer *writer,
                                                         const char *path);
/** Append. Errors: those of the system, RESOURCE_EXHAUSTED (the disk is full) among them. */
MUSTER_MUST_CHECK enum muster_rc muster_file_writer_add(struct muster_file_writer *writer,
                                                        const void *bytes, size_t count);
/** Sync what was added, and rename the file to its path. The end of the writer, also on failure: then the path has
 * what it had. The name is on the disk only when the folder is synced. */
MUSTER_MUST_CHECK enum muster_rc muster_file_writer_finish(struct muster_file_writer *writer);
/** The other end: nothing is left of what was added. */
void muster_file_writer_abandon(struct muster_file_writer *writer);

/** The file that a writer of this process makes beside the path: no other process has it, also not one with the same
 * number in another container, or on another host with another name. False: it is too long. */
bool muster_file_neighbour_format(const char *path, char ret_neighbour[PATH_MAX]);

/** All bytes into a descriptor. -1: errno says why not. */
int muster_file_write_all(int fd, const void *bytes, size_t count);

/** A file that is read at any place. */
struct muster_file_reader {
    int fd;
    uint64_t bytes; /* its size when it was opened */
};
MUSTER_MUST_CHECK enum muster_rc muster_file_reader_open(struct muster_file_reader *reader,
                                                         const char *path);
/** Errors: OUT_OF_RANGE (the file ends before), those of the system. */
MUSTER_MUST_CHECK enum muster_rc muster_file_reader_read(const struct muster_file_reader *reader,
                                                         uint64_t at, void *ret_bytes,
                                                         size_t count);
/** It will be read from its beginning to its end, so the system reads further ahead. */
void muster_file_reader_read_ahead(const struct muster_file_reader *reader);
/** All of its bytes in memory that the system fills from the file when it is touched. It lives on after the reader. A
 * byte that is touched when the file has become shorter, or cannot be read, ends the process by SIGBUS. NULL: the file
 * is empty, or the system gives none. Gives (muster_file_map_close). */
const uint8_t *muster_file_reader_map(const struct muster_file_reader *reader);
/** NULL is accepted. */
void muster_file_map_close(const uint8_t *map, uint64_t bytes);
void muster_file_reader_close(struct muster_file_reader *reader);

#endif
