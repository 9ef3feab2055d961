/* Errors: one record per thread, with code, values and remedy. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local tsemu_error last;

tsemu_error *driver_error(void)
{
    return &last;
}

const tsemu_error *tsemu_last_error(void)
{
    return &last;
}

static void copy_text(char *to, size_t size, const char *from)
{
    size_t length = strlen(from);
    if (length >= size)
        length = size - 1;
    memcpy(to, from, length);
    to[length] = 0;
}

int driver_fail(int code, const char *field, uint64_t value, uint64_t limit, const char *hint,
                const char *format, ...)
{
    char message[sizeof last.message]; /* arguments may point into the record itself */
    char kept_hint[sizeof last.hint];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    copy_text(kept_hint, sizeof kept_hint, hint);
    memset(&last, 0, sizeof last);
    last.code = code;
    last.value = value;
    last.limit = limit;
    last.stream = TSEMU_ALL_STREAMS;
    copy_text(last.field, sizeof last.field, field);
    copy_text(last.message, sizeof last.message, message);
    copy_text(last.hint, sizeof last.hint, kept_hint);
    return code;
}

void driver_fail_about(uint32_t ticket, uint32_t stream)
{
    last.ticket = ticket;
    last.stream = stream;
}

int context_refuses(struct tsemu_context *c)
{
    if (c->closed)
        return driver_fail(TSEMU_E_CLOSED, "context", c->number, 0, "open a new context",
                           "the context is closed");
    last = c->broken_error;
    return c->broken;
}
