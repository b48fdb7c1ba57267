/*
 * killed_at_entry COUNT - starts COUNT children, each of which executes this program anew, and kills each as soon as
 * the new program has the memory of probes: it stands at its entry point then.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Returns whether a line of a file of a process has a text. */
static int has(pid_t process, const char *file, const char *text)
{
    char path[64], line[4096];
    snprintf(path, sizeof path, "/proc/%d/%s", process, file);
    FILE *lines = fopen(path, "r");
    int found = 0;
    while (lines && !found && fgets(line, sizeof line, lines))
        found = strstr(line, text) != NULL;
    if (lines)
        fclose(lines);
    return found;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 0;
    for (int number = 0; number < count; number++) {
        pid_t child = fork();
        if (child == 0) {
            execl("/proc/self/exe", "again", (char *)NULL);
            _exit(1);
        }
        /* A program has the name of its file: this link's. */
        while (!has(child, "comm", "exe") || !has(child, "maps", "/memfd:avtrace"))
            if (waitpid(child, NULL, WNOHANG) == child)
                break;
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    puts("all have ended");
    return 0;
}
