/* The time of day for all new programs of a machine (/etc/ld.so.preload): wrong by the seconds in
 * /run/clock-error. The machines of the lab share the host's clock, which no test may set.
 *
 * It needs no header and no libc of this machine: the program's own libc has what it calls.
 */
struct timespec { long sec, nsec; };
struct timeval { long sec, usec; };

extern long syscall(long number, ...);
extern int open(const char *path, int flags, ...);
extern long read(int file, void *into, unsigned long size);
extern int close(int file);
extern long strtol(const char *text, char **end, int base);

#ifdef __x86_64__
#define CLOCK_GETTIME 228
#else
#define CLOCK_GETTIME 113 /* aarch64 */
#endif
#define REALTIME 0
#define CLOSE_ON_EXEC 02000000

static long error(void)
{
    char text[32] = "";
    int file = open("/run/clock-error", CLOSE_ON_EXEC);

    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
    close(file);
    return strtol(text, 0, 10);
}

int clock_gettime(int clock, struct timespec *now)
{
    int result = syscall(CLOCK_GETTIME, (long)clock, now);

    if (result == 0 && clock == REALTIME) now->sec += error();
    return result;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec at;
    int result = clock_gettime(REALTIME, &at);

    (void)zone;
    now->sec = at.sec;
    now->usec = at.nsec / 1000;
    return result;
}

long time(long *now)
{
    struct timespec at;

    if (clock_gettime(REALTIME, &at)) return -1;
    if (now) *now = at.sec;
    return at.sec;
}
