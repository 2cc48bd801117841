/* Runs one frame through a loaded XDP program again and again (BPF_PROG_TEST_RUN); called by benchmarks/xdp_test_run.py. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static int silent(enum libbpf_print_level level, const char *format, va_list arguments)
{
    (void)level, (void)format, (void)arguments;
    return 0;
}

struct bpf_object *runner_open(const char *path)
{
    libbpf_set_print(silent);
    struct bpf_object *object = bpf_object__open_file(path, NULL);
    if (object && bpf_object__load(object) == 0)
        return object;
    bpf_object__close(object);
    return NULL;
}

void runner_close(struct bpf_object *object) { bpf_object__close(object); }

int runner_program(struct bpf_object *object, const char *name)
{
    struct bpf_program *program = bpf_object__find_program_by_name(object, name);
    return program ? bpf_program__fd(program) : -1;
}

/* Memory of a map with one element. */
void *runner_memory(struct bpf_object *object, const char *name)
{
    struct bpf_map *map = bpf_object__find_map_by_name(object, name);
    if (!map)
        return NULL;
    void *at = mmap(NULL, bpf_map__value_size(map), PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
    return at == MAP_FAILED ? NULL : at;
}

int runner_set(struct bpf_object *object, const char *name, uint32_t key, uint32_t value)
{
    int fd = bpf_object__find_map_fd_by_name(object, name);
    return fd < 0 ? -1 : bpf_map_update_elem(fd, &key, &value, BPF_ANY);
}

/* Nanoseconds for a packet, the mean of `repeat` runs; 0: it cannot be run. `action`: what the last one returned. */
uint32_t runner_run(int program, const void *frame, uint32_t size, uint32_t repeat, uint32_t *action)
{
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_size_in = size, .repeat = (int)repeat);
    if (bpf_prog_test_run_opts(program, &options) != 0)
        return 0;
    *action = options.retval;
    return options.duration;
}

/* A frame after one run. */
int runner_once(int program, const void *frame, uint32_t size, void *out)
{
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_size_in = size, .data_out = out,
                .data_size_out = size);
    return bpf_prog_test_run_opts(program, &options) == 0 ? (int)options.retval : -1;
}

int runner_told(int program, void *context, uint32_t size)
{
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = context, .ctx_size_in = size);
    return bpf_prog_test_run_opts(program, &options);
}

/* Instructions of BPF after the verifier's changes, bytes of machine code, and the machine code itself. */
int runner_size(int program, uint32_t *xlated, uint32_t *bytes, void *code, uint32_t room)
{
    struct bpf_prog_info info = {.jited_prog_insns = (uint64_t)(uintptr_t)code, .jited_prog_len = room};
    uint32_t size = sizeof info;
    if (bpf_obj_get_info_by_fd(program, &info, &size) != 0)
        return errno;
    *xlated = info.xlated_prog_len / 8;
    *bytes = info.jited_prog_len;
    return 0;
}
