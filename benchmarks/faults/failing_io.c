/* Makes one system call fail for paths that hold a given part: FAILING_IO="open:116:tokenizer" or "write:122:step_".
   What a stale NFS handle, a lost disk or a used-up quota look like to a program, without the hardware. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int broken(const char *call, const char *path)
{
    const char *order = getenv("FAILING_IO");
    char name[16], part[256];
    int number;
    if (!order || !path || sscanf(order, "%15[^:]:%d:%255[^\n]", name, &number, part) != 3)
        return 0;
    if (strcmp(name, call) || !strstr(path, part))
        return 0;
    return number;
}

#define OPEN(symbol)                                                        \
    int symbol(const char *path, int flags, ...)                            \
    {                                                                       \
        static int (*real)(const char *, int, ...);                         \
        int mode, number = broken("open", path);                            \
        va_list more;                                                       \
        va_start(more, flags);                                              \
        mode = va_arg(more, int);                                           \
        va_end(more);                                                       \
        if (number) { errno = number; return -1; }                          \
        if (!real) real = dlsym(RTLD_NEXT, #symbol);                        \
        return real(path, flags, mode);                                     \
    }
OPEN(open)
OPEN(open64)

static int number_for(const char *call, int descriptor)
{
    char link[64], path[4096];
    ssize_t length;
    if (!getenv("FAILING_IO"))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    return broken(call, path);
}

ssize_t write(int descriptor, const void *data, size_t size)
{
    static ssize_t (*real)(int, const void *, size_t);
    int number = number_for("write", descriptor);
    if (number) { errno = number; return -1; }
    if (!real) real = dlsym(RTLD_NEXT, "write");
    return real(descriptor, data, size);
}

ssize_t read(int descriptor, void *data, size_t size)
{
    static ssize_t (*real)(int, void *, size_t);
    int number = number_for("read", descriptor);
    if (number) { errno = number; return -1; }
    if (!real) real = dlsym(RTLD_NEXT, "read");
    return real(descriptor, data, size);
}
