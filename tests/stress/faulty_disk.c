/* Make the k-th write, sync or lock of a store's files fail, below SQLite and below Python.
 * `fault_arm` says which; with `stay`, all the later ones of that kind fail too. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, LOCK = 3 };
static int armed, error_number, stays, hits;
static long countdown;

void fault_arm(int kind, long k, int number, int stay) {
    countdown = k, error_number = number, stays = stay, hits = 0, armed = kind;
}

int fault_hits(void) {
    armed = 0;
    return hits;
}

static int of_store(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    long size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return strstr(path, "/dibs.db") != NULL;
}

static int fails(int kind, int file) {
    if (armed != kind || !of_store(file))
        return 0;
    if (countdown-- > 0 || (hits && !stays))
        return 0;
    hits++;
    errno = error_number;
    return 1;
}

ssize_t write(int file, const void *data, size_t size) {
    return fails(WRITE, file) ? -1 : syscall(SYS_write, file, data, size);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    return fails(WRITE, file) ? -1 : syscall(SYS_pwrite64, file, data, size, at);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    return pwrite64(file, data, size, at);
}

int ftruncate64(int file, off64_t size) {
    return fails(WRITE, file) ? -1 : syscall(SYS_ftruncate, file, size);
}

int ftruncate(int file, off_t size) { return ftruncate64(file, size); }

int fsync(int file) { return fails(SYNC, file) ? -1 : syscall(SYS_fsync, file); }

int fdatasync(int file) { return fails(SYNC, file) ? -1 : syscall(SYS_fdatasync, file); }

#define FCNTL(name) \
    int name(int file, int command, ...) { \
        va_list rest; \
        va_start(rest, command); \
        void *argument = va_arg(rest, void *); \
        va_end(rest); \
        if (command == F_SETLK && ((struct flock *)argument)->l_type != F_UNLCK && \
            fails(LOCK, file)) \
            return -1; \
        return syscall(SYS_fcntl, file, command, argument); \
    }
FCNTL(fcntl)
FCNTL(fcntl64)
