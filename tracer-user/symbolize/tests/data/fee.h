int fee_of(int kind);
int fee_callback(int (*callback)(int), int kind);
