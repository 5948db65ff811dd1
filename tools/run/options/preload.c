/* --preload: the program must be one of Python's, and its interpreter is found here.
 *
 * The command line is that of an interpreter (python3 -u train.py …), or a script whose first line
 * names one. Options of the interpreter are handed to the process that imports the modules. */
#include "run/options/options_internal.h"

#include "common/command.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

static bool refuse_program(const struct run_settings *settings, int *ret_exit)
{
    *ret_exit = command_refuse(
        RUN_COMMAND,
        "--preload must be followed by a Python program, got %s; write python3 and its script, or "
        "a script whose first line names Python",
        settings->program[0]);
    return false;
}

static bool refuse_word(const char *word, int *ret_exit)
{
    *ret_exit = command_refuse(RUN_COMMAND,
                               "--preload must be followed by a script, -m MODULE or -c CODE of "
                               "the interpreter, got '%s'; the options before it must be some of "
                               "-b -B -d -E -I -O -P -q -s -S -u -v -W -X",
                               word);
    return false;
}

bool run_preload_is_module(const char *text, size_t length)
{
    bool is_start = true; /* of a name */

    for (size_t i = 0; i < length; i++) {
        unsigned char letter = (unsigned char)text[i];
        bool is_digit = letter >= '0' && letter <= '9';
        bool is_letter = (letter | 0x20) >= 'a' && (letter | 0x20) <= 'z';

        if (letter == '.' ? is_start
                          : !is_letter && letter != '_' && letter < 0x80 && (is_start || !is_digit))
            return false;
        is_start = letter == '.';
    }
    return !is_start;
}

static bool is_python(const char *path)
{
    const char *slash = strrchr(path, '/');

    return strncmp(slash != NULL ? slash + 1 : path, "python", 6) == 0;
}

static bool add_word(struct run_python *python, char *word)
{
    if (python->word_count + 1 >= sizeof(python->words) / sizeof(python->words[0]))
        return false;
    python->words[python->word_count++] = word;
    return true;
}

/* The options in front of the program. Returns the number of words, SIZE_MAX if ret_refused is not
 * known. */
static size_t read_options(struct run_python *python, char **words, const char **ret_refused)
{
    size_t i = 0;

    for (; words[i] != NULL && words[i][0] == '-' && words[i][1] != '\0'; i++) {
        const char *letters = words[i] + 1;
        size_t known = strspn(letters, "bBdEIOPqsSuv");

        *ret_refused = words[i];
        if (strcmp(words[i], "-m") == 0 || strcmp(words[i], "-c") == 0)
            break;
        if (letters[known] != '\0' && letters[known] != 'W' && letters[known] != 'X')
            return SIZE_MAX;
        if (!add_word(python, words[i]))
            return SIZE_MAX;
        if (letters[known] == '\0' || letters[known + 1] != '\0')
            continue;
        i++; /* the value is the next word */
        if (words[i] == NULL || !add_word(python, words[i]))
            return SIZE_MAX;
    }
    return i;
}

static bool read_command(struct run_settings *settings, int *ret_exit)
{
    struct run_python *python = &settings->python;
    char **words = settings->program + 1;
    const char *refused = NULL;
    size_t count = read_options(python, words, &refused);

    if (count == SIZE_MAX)
        return refuse_word(refused, ret_exit);
    words += count;
    python->kind = "script";
    if (words[0] != NULL && words[0][0] == '-') {
        python->kind = strcmp(words[0], "-m") == 0 ? "module" : "code";
        if (strcmp(words[0], "-") == 0)
            return refuse_word(words[0], ret_exit);
        words++;
    }
    if (words[0] == NULL)
        return refuse_word(settings->program[0], ret_exit);
    python->target = words;
    return true;
}

/* "#!/usr/bin/env python3" or "#!/venv/bin/python -u": the words after "#!", without env. False: the
 * file has no such line. */
static bool read_first_line(const char *path, struct run_python *python)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t length = fd >= 0 ? read(fd, python->line, sizeof(python->line) - 1) : -1;
    char *rest = NULL, *word;

    if (fd >= 0)
        close(fd);
    if (length < 2 || strncmp(python->line, "#!", 2) != 0)
        return false;
    python->line[length] = '\0';
    python->line[strcspn(python->line, "\n")] = '\0';
    word = strtok_r(python->line + 2, " \t\r", &rest);
    if (word != NULL && strlen(word) >= 4 && strcmp(word + strlen(word) - 4, "/env") == 0) {
        word = strtok_r(NULL, " \t\r", &rest);
        if (word != NULL && strcmp(word, "-S") == 0)
            word = strtok_r(NULL, " \t\r", &rest);
    }
    for (; word != NULL; word = strtok_r(NULL, " \t\r", &rest)) {
        if (!add_word(python, word))
            return false;
    }
    return python->word_count > 0 && is_python(python->words[0]);
}

bool run_preload_read(struct run_settings *settings, int *ret_exit)
{
    struct run_python *python = &settings->python;
    char **program = settings->program;

    if (settings->preload == NULL)
        return true;
    if (settings->resumable != NULL) {
        *ret_exit =
            command_refuse(RUN_COMMAND,
                           "--preload cannot be given with --resumable %s, as its workers outlive "
                           "the process that they fork from; leave one of them out",
                           settings->resumable);
        return false;
    }
    if (is_python(program[0])) {
        python->words[python->word_count++] = program[0];
        return read_command(settings, ret_exit);
    }
    if (strchr(program[0], '/') == NULL || access(program[0], X_OK) != 0 ||
        !read_first_line(program[0], python))
        return refuse_program(settings, ret_exit);
    python->kind = "script";
    python->target = program;
    return true;
}
