/* A diamond of four tasks on a device process: diamond unix:PATH */
#include <stdio.h>
#include <tsemu.h>

static int failed(const char *what)
{
    const tsemu_error *error = tsemu_last_error();
    fprintf(stderr, "%s: %s (%s)\n", what, error->message, error->hint);
    return 1;
}

int main(int argc, char **argv)
{
    tsemu_context *context;
    tsemu_task top = {0}, left = {0}, right = {0}, bottom = {0};
    tsemu_task *after_top[] = {&top}, *after_both[] = {&left, &right};
    tsemu_task *all[] = {&top, &left, &right, &bottom};

    if (tsemu_open(argc > 1 ? argv[1] : "", "diamond", NULL, &context))
        return failed("open");
    int cores = tsemu_engine_class(context, "AICORE");
    if (cores < 0)
        return failed("class");
    tsemu_launch_desc kernel = {.opcode = TSEMU_OPCODE_KERNEL,
                                .engine_class = (uint8_t)cores,
                                .blocks = 1,
                                .cycles = 1000};
    if (tsemu_launch(context, &kernel, NULL, 0, &top) ||
        tsemu_launch(context, &kernel, after_top, 1, &left) ||
        tsemu_launch(context, &kernel, after_top, 1, &right) ||
        tsemu_launch(context, &kernel, after_both, 2, &bottom))
        return failed("launch");
    if (tsemu_wait(context, &bottom, TSEMU_NO_LIMIT))
        return failed("wait");
    for (int i = 0; i < 4; i++)
        printf("task %u: core %u, %llu to %llu ps\n", all[i]->ticket, all[i]->core,
               (unsigned long long)all[i]->start_ps, (unsigned long long)all[i]->end_ps);
    tsemu_close(context);
    return 0;
}
