/* identity.c - shows as whom it runs: real and effective user, groups. */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    gid_t groups[64];
    int number = getgroups(64, groups);

    printf("%d %d %d %d:", (int)getuid(), (int)geteuid(), (int)getgid(), (int)getegid());
    for (int i = 0; i < number; i++)
        printf(" %d", (int)groups[i]);
    printf("\n");
    return 0;
}
