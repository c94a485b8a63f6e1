/* Makes files below a directory fail with EIO: a library to preload (LD_PRELOAD). Linux, x86-64 and arm64.
 *
 * FAILING_IO_BELOW names the directory, FAILING_IO_SWITCH a file: while it contains "r", reads fail, and while it
 * contains "w", writes, renames and syncs. Sockets and pipes never fail.
 *
 * Sleeps are the kernel's: preloaded before libfaketime 0.9.10, which refuses some of them with EINVAL. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int is_failing(char kind) {
  const char *path = getenv("FAILING_IO_SWITCH");
  if (path == NULL) return 0;
  const int descriptor = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return 0;
  char kinds[8] = {0};
  const long length = syscall(SYS_read, descriptor, kinds, sizeof kinds - 1);
  syscall(SYS_close, descriptor);
  return length > 0 && strchr(kinds, kind) != NULL;
}

static int is_below(const char *path) {
  const char *directory = getenv("FAILING_IO_BELOW");
  return directory != NULL && path != NULL && strncmp(path, directory, strlen(directory)) == 0;
}

static int fails(int descriptor, char kind) {
  const int before = errno;
  char link[64], path[PATH_MAX];
  int failing = 0;
  if (is_failing(kind)) {
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (length > 0) {
      path[length] = 0;
      failing = is_below(path);
    }
  }
  errno = failing ? EIO : before;
  return failing;
}

static int path_fails(const char *path, char kind) {
  const int before = errno;
  const int failing = is_below(path) && is_failing(kind);
  errno = failing ? EIO : before;
  return failing;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define ON_DESCRIPTOR(kind, type, name, parameters, ...)  \
  type name parameters {                                  \
    static __typeof__(&name) real;                        \
    if (real == NULL) real = REAL(name);                  \
    return fails(fd, kind) ? -1 : real(__VA_ARGS__);      \
  }

ON_DESCRIPTOR('r', ssize_t, read, (int fd, void *to, size_t size), fd, to, size)
ON_DESCRIPTOR('r', ssize_t, pread64, (int fd, void *to, size_t size, off64_t at), fd, to, size, at)
ON_DESCRIPTOR('w', ssize_t, write, (int fd, const void *from, size_t size), fd, from, size)
ON_DESCRIPTOR('w', ssize_t, pwrite64, (int fd, const void *from, size_t size, off64_t at), fd, from, size, at)
ON_DESCRIPTOR('w', int, fsync, (int fd), fd)
ON_DESCRIPTOR('w', int, fdatasync, (int fd), fd)
ON_DESCRIPTOR('w', int, ftruncate64, (int fd, off64_t size), fd, size)

int rename(const char *from, const char *to) {
  return path_fails(to, 'w') ? -1 : REAL(rename)(from, to);
}

#define OPENING(name)                                                                     \
  int name(const char *path, int flags, ...) {                                            \
    static __typeof__(&name) real;                                                        \
    if (real == NULL) real = REAL(name);                                                  \
    va_list more;                                                                         \
    va_start(more, flags);                                                                \
    const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(more, mode_t) : 0;     \
    va_end(more);                                                                         \
    const char kind = (flags & O_ACCMODE) == O_RDONLY ? 'r' : 'w';                        \
    return path_fails(path, kind) ? -1 : real(path, flags, mode);                         \
  }

OPENING(open)
OPENING(open64)

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
  return syscall(SYS_clock_nanosleep, clock, flags, until, left) == 0 ? 0 : errno;
}
