/* sched_yield for all programs of a lab's machine (/etc/ld.so.preload): it sleeps for a moment.
 *
 * A lab's machine has many more ranks than processors. Ranks that wait call sched_yield without
 * end, and Linux 6.18 then runs two of them alone for 20 seconds and longer, on all processors,
 * while others that sleep and wake often are ready to run: nothing else of the host gets any time,
 * neither processes of nice -20 nor the kernel's threads (docs/decisions/215).
 */
#include <errno.h>
#include <time.h>

int sched_yield(void)
{
    const struct timespec moment = {0, 20 * 1000};
    const int before = errno;

    nanosleep(&moment, 0); /* a signal that ends it early does no harm */
    errno = before;
    return 0;
}
