/* stock.h - what the library of stock.c exports. */
#ifndef STOCK_H
#define STOCK_H

long stock_get(void);
void stock_set(long value);
void stock_add(long amount);
void stock_move(long amount, void (*between)(void));
void stock_take(long amount, void (*between)(void));

#endif
