/* How the user half gives up: one message, and exit code 2. */
#ifndef CORA_XDP_FAULT_H
#define CORA_XDP_FAULT_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* What is undone before the process ends; set once there is something to undo. */
static void (*cora_before_failing)(void);

static __attribute__((noreturn, cold, format(printf, 1, 2))) void cora_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("cora: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    void (*undo)(void) = cora_before_failing;
    cora_before_failing = NULL;
    if (undo)
        undo();
    exit(2);
}

#endif
