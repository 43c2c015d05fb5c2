/* Make Linux look like a system without its own calls, to every Python process below everything it
 * links to: no /proc, inotify, prctl and eventfd, but what macOS has in their place. Other programs
 * see all of Linux: `ps` needs it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

static int is_denied(const char *path) {
    static int python = -1;
    if (python < 0)
        python = !strncmp(program_invocation_short_name, "python", 6);
    if (!python || !path || (strncmp(path, "/proc/", 6) && strcmp(path, "/proc")))
        return 0;
    errno = ENOENT;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0; \
        va_end(rest); \
        return is_denied(path) ? -1 : syscall(SYS_openat, AT_FDCWD, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0; \
        va_end(rest); \
        return is_denied(path) ? -1 : syscall(SYS_openat, folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

#define DENY(result, no, name, parameters, arguments) \
    result name parameters { return is_denied(path) ? no : REAL(name) arguments; }
DENY(FILE *, NULL, fopen, (const char *path, const char *mode), (path, mode))
DENY(FILE *, NULL, fopen64, (const char *path, const char *mode), (path, mode))
DENY(DIR *, NULL, opendir, (const char *path), (path))
DENY(ssize_t, -1, readlink, (const char *path, char *to, size_t size), (path, to, size))
DENY(ssize_t, -1, readlinkat, (int at, const char *path, char *to, size_t size), (at, path, to, size))
DENY(int, -1, access, (const char *path, int mode), (path, mode))
DENY(int, -1, faccessat, (int at, const char *path, int mode, int how), (at, path, mode, how))
DENY(int, -1, stat, (const char *path, struct stat *to), (path, to))
DENY(int, -1, stat64, (const char *path, struct stat64 *to), (path, to))
DENY(int, -1, lstat, (const char *path, struct stat *to), (path, to))
DENY(int, -1, lstat64, (const char *path, struct stat64 *to), (path, to))
DENY(int, -1, fstatat, (int at, const char *path, struct stat *to, int how), (at, path, to, how))
DENY(int, -1, fstatat64, (int at, const char *path, struct stat64 *to, int how), (at, path, to, how))
DENY(int, -1, statx, (int at, const char *path, int how, unsigned what, struct statx *to),
     (at, path, how, what, to))

#define NONE(name, number) \
    int name(int first, long a, long b, long c, long d) { \
        if (is_denied("/proc")) { errno = ENOSYS; return -1; } \
        return syscall(number, first, a, b, c, d); \
    }
NONE(inotify_init1, SYS_inotify_init1)
NONE(inotify_add_watch, SYS_inotify_add_watch)
NONE(prctl, SYS_prctl)

/* libuv, below uvloop, has another way on macOS, which it does not have here. */
int eventfd(unsigned count, int flags) {
    Dl_info by = {0};
    dladdr(__builtin_return_address(0), &by);
    if (is_denied("/proc") && !(by.dli_fname && strstr(by.dli_fname, "/uvloop/"))) {
        errno = ENOSYS;
        return -1;
    }
    return syscall(SYS_eventfd2, count, flags);
}

/* What macOS has. */
int gethostuuid(unsigned char *to, const struct timespec *wait) {
    (void)wait;
    memcpy(to, "\x0d\x1b\x5d\x1b\x5d\x1b\x5d\x1b\x5d\x1b\x5d\x1b\x5d\x1b\x5d\x1b", 16);
    return 0;
}

int sysctlbyname(const char *name, char *to, size_t *size, void *new_value, size_t new_size) {
    (void)new_value;
    (void)new_size;
    int file = strcmp(name, "kern.bootsessionuuid") ? -1
        : syscall(SYS_openat, AT_FDCWD, "/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC, 0);
    if (file < 0 || *size < 37)
        return -1;
    long got = read(file, to, 36);
    close(file);
    to[36] = 0;
    *size = 37;
    return got == 36 ? 0 : -1;
}

int statfs_of_macos(const char *path, char *to) __asm__("statfs$INODE64");
int statfs_of_macos(const char *path, char *to) {
    struct statfs found;
    if (syscall(SYS_statfs, path, &found))
        return -1;
    strcpy(to + 72, found.f_type == 0x6969 ? "nfs" : "apfs");
    return 0;
}
