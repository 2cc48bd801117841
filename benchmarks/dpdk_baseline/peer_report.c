/* Compiled into a program that was not made to be measured: on SIGUSR1 it prints the packets that device 0 has received
 * and the CPU time of the thread that got the signal, the only one that runs; on SIGTERM it ends. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <rte_ethdev.h>

static void report(int number)
{
    struct rte_eth_stats stats = {0};
    struct timespec cpu;
    if (number == SIGTERM)
        _exit(0);
    rte_eth_stats_get(0, &stats);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    char line[96];
    int length = snprintf(line, sizeof line, "{\"packets\": %llu, \"cpu_ns\": %llu}\n", (unsigned long long)stats.ipackets,
                          (unsigned long long)cpu.tv_sec * 1000000000 + (unsigned long long)cpu.tv_nsec);
    if (write(2, line, (size_t)length) != length)
        _exit(1);
}

static __attribute__((constructor)) void install(void)
{
    signal(SIGUSR1, report);
    signal(SIGTERM, report);
}
