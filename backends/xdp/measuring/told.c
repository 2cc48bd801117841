/* Nanoseconds of one system call that runs a BPF program on a message: `told OBJECT BYTES CALLS`. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double processor_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return fprintf(stderr, "usage: told OBJECT BYTES CALLS\n"), 2;
    size_t bytes = strtoul(argv[2], NULL, 10);
    long calls = strtol(argv[3], NULL, 10);
    struct bpf_object *object = bpf_object__open_file(argv[1], NULL);
    if (!object || bpf_object__load(object))
        return fprintf(stderr, "the kernel does not load %s\n", argv[1]), 1;
    struct bpf_program *program = bpf_object__find_program_by_name(object, "told");
    void *message = calloc(1, bytes);
    if (!program || !message)
        return fprintf(stderr, "there is no program 'told', or no memory\n"), 1;
    LIBBPF_OPTS(bpf_test_run_opts, run, .ctx_in = message, .ctx_size_in = (unsigned)bytes);
    double start = processor_ns();
    for (long i = 0; i < calls; i++)
        if (bpf_prog_test_run_opts(bpf_program__fd(program), &run))
            return fprintf(stderr, "the kernel does not run it: %s\n", strerror(errno)), 1;
    printf("%.1f\n", (processor_ns() - start) / (double)calls);
    free(message);
    bpf_object__close(object);
    return 0;
}
