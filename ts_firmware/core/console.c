/* Console log lines: "[time] text" to the UART. Formats %u, %s and %t (a time in picoseconds). */
#include "state.h"

#define LINE_BYTES 160u

struct line {
    char text[LINE_BYTES];
    uint32_t length;
};

static void put(struct line *line, char c)
{
    if (line->length < LINE_BYTES - 1u)
        line->text[line->length++] = c;
}

static void put_text(struct line *line, const char *text)
{
    while (*text)
        put(line, *text++);
}

/* Quotient and remainder by ten of 64 bits without a 64-bit division: long division by halves. */
static uint64_t divide_by_ten(uint64_t value, uint32_t *rest)
{
    uint32_t parts[4] = {(uint32_t)(value >> 48) & 0xFFFFu, (uint32_t)(value >> 32) & 0xFFFFu,
                         (uint32_t)(value >> 16) & 0xFFFFu, (uint32_t)value & 0xFFFFu};
    uint64_t quotient = 0;
    uint32_t carry = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t part = carry << 16 | parts[i];
        quotient = quotient << 16 | part / 10u;
        carry = part % 10u;
    }
    *rest = carry;
    return quotient;
}

static void put_number(struct line *line, uint64_t value)
{
    char digits[20];
    uint32_t count = 0;
    do {
        uint32_t digit;
        value = divide_by_ten(value, &digit);
        digits[count++] = (char)('0' + digit);
    } while (value);
    while (count)
        put(line, digits[--count]);
}

void console_log(struct fw *fw, const char *format, ...)
{
    struct line line = {.length = 0};
    va_list arguments;
    va_start(arguments, format);
    put(&line, '[');
    put_number(&line, fw->hal->now);
    put_text(&line, " ps] ");
    for (; *format; format++) {
        if (*format != '%') {
            put(&line, *format);
            continue;
        }
        format++;
        if (*format == 'u')
            put_number(&line, va_arg(arguments, uint32_t));
        else if (*format == 't')
            put_number(&line, va_arg(arguments, uint64_t));
        else if (*format == 's')
            put_text(&line, va_arg(arguments, const char *));
    }
    va_end(arguments);
    line.text[line.length++] = '\n';
    hal_uart_write(fw->hal, line.text, line.length);
}
