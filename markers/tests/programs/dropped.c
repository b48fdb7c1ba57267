/* A function that nothing calls, for linkers that drop such. */
#include "avtrace.h"

int count;

void dropped(void)
{
    AVTRACE_REGION("dropped");
    count++;
}

int main(void)
{
    AVTRACE_BEGIN("kept");
    count++;
    AVTRACE_END("kept");
    return count - 1;
}
